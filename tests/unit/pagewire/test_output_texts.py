"""What a person sees of results and errors of the offline API."""

import traceback

import pytest

from pagewire.client.loop_thread import LoopThread
from pagewire.offline.outputs import CompletionOutput, RequestMetrics, RequestOutput
from pagewire_shared.errors import InternalError, InvalidRequestError, PagewireError


def output(num_tokens: int) -> RequestOutput:
    choice = CompletionOutput(
        index=0,
        text="once",
        token_ids=list(range(num_tokens)),
        cumulative_logprob=None,
        logprobs=None,
        finish_reason="length",
        stop_reason=None,
    )
    return RequestOutput(
        request_id="ab",
        prompt="Hi",
        prompt_token_ids=[1, 2],
        outputs=[choice],
        finished=True,
        metrics=RequestMetrics(0.1234567, 0.5, 0, 3),
    )


def test_a_result_shows_what_says_something() -> None:
    assert repr(output(9)) == (
        "RequestOutput(request_id='ab', prompt='Hi', prompt_token_ids=[1, 2], outputs=["
        "CompletionOutput(index=0, text='once', "
        "token_ids=[0, 1, 2, 3, 4, 5, 6, 7, ... 9 in all], finish_reason='length')], "
        "finished=True, metrics=RequestMetrics(time_to_first_token_seconds=0.123457, "
        "total_seconds=0.5, num_resumes=0, num_cached_tokens=3))"
    )
    assert "token_ids=[0, 1, 2]," in repr(output(3))


@pytest.mark.parametrize(("kind", "num_frames"), [(InvalidRequestError, 2), (InternalError, 6)])
def test_errors_that_a_user_can_mend_come_without_inner_frames(
    kind: type[PagewireError], num_frames: int
) -> None:
    async def deep(levels: int) -> None:
        if not levels:
            raise kind("no")
        await deep(levels - 1)

    with pytest.raises(kind) as caught:
        LoopThread().run(deep(6))
    frames = len(traceback.extract_tb(caught.value.__traceback__))
    assert frames == num_frames if num_frames == 2 else frames > num_frames
