"""A Submit as plain data: beam search in it, and what it may not bring along; ends of choices."""

import pytest

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.convert.frontend import finished_messages, submission
from pagewire_scheduler.core.data.events import FinishedEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.sampling.beam import BeamParams


def submit(width: int = 2, **fields: object) -> pb.Submit:
    beam = fields.pop("beam", sampling_pb2.BeamSearch(length_penalty=0.5))
    emitted = fields.pop("emitted", [pb.EmittedTokens()] * width)
    return pb.Submit(
        request_id=b"r" * 16,
        model="tiny",
        prompt_token_ids=pack_u32([1, 2]),
        emitted=emitted,
        sampling=sampling_pb2.SamplingParams(temperature=0, max_tokens=5, seed=1),
        generate=pb.GenerateKind(beam_search=beam),
        **fields,
    )


def test_a_search_is_plain_data() -> None:
    got = submission(submit(16), now=0.0)
    assert got.beam_search == BeamParams(0.5, False)
    assert len(got.emitted) == 16


def test_sampling_is_no_search() -> None:
    got = submission(submit(beam=None), now=0.0)
    assert got.beam_search is None
    assert not got.sampling.use_beam_search


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (submit(17), "n"),
        (submit(emitted=[pb.EmittedTokens(token_ids=pack_u32([3]))]), "emitted"),
        (submit(emitted=[pb.EmittedTokens(is_finished=True)]), "emitted"),
        (submit(beam=sampling_pb2.BeamSearch(length_penalty=99)), "length_penalty"),
    ],
)
def test_bad_searches_name_their_field(message: pb.Submit, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        submission(message, now=0.0)
    assert caught.value.field == field


def test_an_end_says_where_cached_tokens_were() -> None:
    cached = (("worker", 32), ("memory", 96))
    end = FinishedEvent(
        frontend_id=b"f" * 16,
        request_id=RequestId(b"r" * 16),
        handle=1,
        choice=0,
        epoch=0,
        num_tokens=5,
        state=State.FINISHED_STOPPED,
        stop_token_id=None,
        error=None,
        cached_tokens=cached,
    )
    ((choice,),) = (message.choices for message in finished_messages([end]))
    assert [(entry.tier, entry.num_tokens) for entry in choice.cached_tokens] == [*cached]
