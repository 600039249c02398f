"""Beam search of the offline API against a scripted client: what is asked, and the results."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from pagewire.client.batch_answers import BatchPart
from pagewire.client.events import (
    Closed,
    Delta,
    Event,
    Finished,
    Opened,
    PromptLogprobs,
    Timings,
    TokenLogprob,
    Usage,
)
from pagewire.offline.beam_search import BeamSearchParams
from pagewire.offline.offline_run import OfflineRun
from pagewire.offline.prompts import prompt_requests
from pagewire_protos.common.v1.sampling_pb2 import EARLY_STOPPING_NEVER
from pagewire_protos.frontend.v1.inference_pb2 import CompleteRequest, GenerationOptions
from pagewire_shared.errors import ContextLengthError, InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams

CLOSED = Closed(Usage(1, 1, 0), Timings(0.0, 0.0, 0))
EOS = 2


class ScriptedClient:
    """Finds two sequences, and gives position p of a prompt the log-probability -p."""

    def __init__(self) -> None:
        self.asked: list[GenerationOptions] = []
        self.decoded: list[list[int]] = []

    async def batch(self, requests: Sequence[CompleteRequest]) -> AsyncIterator[BatchPart]:
        for index, request in enumerate(requests):
            try:
                yield BatchPart(index, list(self._events(request)), None, None)
            except ContextLengthError as error:
                yield BatchPart(index, [], error, None)

    def _events(self, request: CompleteRequest) -> Iterator[Event]:
        self.asked.append(request.options)
        ids = list(request.token_ids.ids) or [7, 8]
        yield Opened("ab", request.model, tuple(ids), 1)
        if request.options.HasField("beam_search"):
            yield Delta(0, 0, [5, EOS], "x")
            yield Finished(0, "stop", "", None)
            yield Delta(1, 0, [5, 6, 6], "xyy")
            yield Finished(1, "length", "", None)
        elif len(ids) == 5 and request.options.sampling.max_tokens == 1:
            raise ContextLengthError("full", field="max_tokens")
        else:
            scores = tuple(TokenLogprob(i, -float(p), (), 1) for p, i in enumerate(ids))
            yield PromptLogprobs(1, scores[1:])
            yield Delta(0, 0, [9], "z")
            yield Finished(0, "length", "", None)
        yield CLOSED

    async def detokenize(self, token_ids: Sequence[int], *, model: str) -> str:
        self.decoded.append(list(token_ids))
        return "+".join(map(str, token_ids))


def search(client: ScriptedClient, **params: Any) -> Any:
    asked = BeamSearchParams(**{"beam_width": 2, "max_tokens": 3, **params})
    requests = prompt_requests("p", asked.sampling)
    done: list[int] = []
    run = OfflineRun(client, "m").search_all(requests, 4, lambda: done.append(1))  # type: ignore[arg-type]
    [output] = asyncio.run(run)
    assert done == [1]
    return output


def test_sequences_have_tokens_text_and_log_probability() -> None:
    client = ScriptedClient()
    first, second = search(client).sequences
    # Prompt 7 8, answer 5 EOS: positions 2 and 3 of the sequence read again.
    assert (first.tokens, first.text, first.cum_logprob) == ([7, 8, 5], "7+8+5", -5.0)
    assert (first.finish_reason, first.stop_reason) == ("stop", None)
    assert (second.tokens, second.cum_logprob) == ([7, 8, 5, 6, 6], None)
    beam = client.asked[0]
    assert (beam.n, beam.sampling.max_tokens, beam.sampling.temperature) == (2, 3, 0.0)
    assert beam.beam_search.early_stopping == EARLY_STOPPING_NEVER
    assert client.asked[1].sampling.prompt_logprobs == 0


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"beam_width": 17}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 0.5}, "temperature"),
        ({"length_penalty": 11}, "length_penalty"),
    ],
)
def test_parameters_have_the_bounds_of_sampling(params: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        search(ScriptedClient(), **params)
    assert caught.value.field == field


def test_texts_of_tokens_are_decoded_once() -> None:
    client = ScriptedClient()
    run = OfflineRun(client, "m")  # type: ignore[arg-type]
    params = SamplingParams(max_tokens=1, prompt_logprobs=0)
    requests = prompt_requests(["p", "p"], params)
    outputs = asyncio.run(run.run_all(requests, 1, lambda: None))
    for output in outputs:
        assert output.prompt_logprobs is not None
        assert output.prompt_logprobs[0] is None
        assert output.prompt_logprobs[1][8].decoded_token == "8"
    assert client.decoded == [[8]]
