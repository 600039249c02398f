"""Requests that lean on everything that must outlive a process or a preemption, and how what
came of them is compared."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from pagewire import AsyncClient, RequestOutput, SamplingParams
from pagewire.client.events import Closed, Delta, Event, PromptLogprobs
from pagewire.offline.outputs import CompletionOutput, Logprob, OutputCollector
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

LOGPROB_TOLERANCE = 1e-4
NUM_TOKENS = 160

CODES = {
    "type": "array",
    "items": {"type": "string", "pattern": "^[a-f]{6}-[0-9]{4}$"},
    "minItems": 14,
    "maxItems": 16,
}
PARAMS = {
    "guided": SamplingParams(
        temperature=1.0,
        seed=1,
        max_tokens=400,
        structured_outputs=StructuredOutputsParams(json=CODES),
    ),
    "choices": SamplingParams(n=4, temperature=1.0, seed=2, max_tokens=NUM_TOKENS, ignore_eos=True),
    "rules": SamplingParams(
        temperature=0.7,
        seed=3,
        max_tokens=NUM_TOKENS,
        ignore_eos=True,
        repetition_penalty=1.3,
        presence_penalty=1.0,
        frequency_penalty=0.8,
        logit_bias={40: 3.0, 41: -5.0},
        bad_words=("th", "e"),
        logprobs=5,
        prompt_logprobs=2,
    ),
    # Above all of its prompt.
    "prompt": SamplingParams(temperature=1.0, seed=4, max_tokens=8, prompt_logprobs=1),
}
PROMPTS = {
    name: [3 + (number * step) % 500 for number in range(length)]
    for name, step, length in (
        ("guided", 7, 30),
        ("choices", 11, 60),
        ("rules", 13, 150),
        ("prompt", 17, 500),
    )
}


@dataclass(slots=True)
class Follower:
    """One request while it runs.

    Attributes:
        name: Which of PARAMS.
        num_tokens: Tokens that came so far, of all choices.
        num_prompt_logprobs: Positions of the prompt told so far, whatever they are.
        output: The result, once it has ended.
    """

    name: str
    num_tokens: int = 0
    num_prompt_logprobs: int = 0
    num_resumes: int = 0
    output: RequestOutput | None = field(default=None, repr=False)

    async def follow(self, events: AsyncIterator[Event]) -> None:
        """Read to the end; a gap or a repetition fails an assertion of the collector."""
        params = PARAMS[self.name]
        collector = OutputCollector(
            params.n, params.logprobs is not None, params.prompt_logprobs is not None
        )
        async for event in events:
            match event:
                case Delta():
                    self.num_tokens += len(event.token_ids)
                case PromptLogprobs():
                    self.num_prompt_logprobs += len(event.logprobs)
                case Closed():
                    self.num_resumes = event.timings.num_resumes
            collector.add(event)
        self.output = collector.result(None)


def start(client: AsyncClient, names: Sequence[str]) -> tuple[list[Follower], asyncio.Task[object]]:
    """Begin to run requests; the task ends when they have."""
    followers = [Follower(name) for name in names]
    calls = [one.follow(client.complete(PROMPTS[one.name], PARAMS[one.name])) for one in followers]
    return followers, asyncio.ensure_future(asyncio.gather(*calls))


async def until_grown(followers: Sequence[Follower], num_tokens: int, seconds: float) -> None:
    """Wait until each has so many more tokens."""
    wanted = [one.num_tokens + num_tokens for one in followers]
    async with asyncio.timeout(seconds):
        while any(one.num_tokens < least for one, least in zip(followers, wanted, strict=True)):
            await asyncio.sleep(0.001)


def assert_equal(found: Follower, expected: RequestOutput) -> None:
    """Fail unless everything a user sees is equal, log-probabilities within LOGPROB_TOLERANCE."""
    output, params = found.output, PARAMS[found.name]
    assert output is not None
    has_prompt = params.prompt_logprobs is not None
    assert found.num_prompt_logprobs == (len(PROMPTS[found.name]) - 1 if has_prompt else 0)
    _assert_logprobs_equal(output.prompt_logprobs, expected.prompt_logprobs)
    assert len(output.outputs) == len(expected.outputs) == params.n
    for one, other in zip(output.outputs, expected.outputs, strict=True):
        assert _without_numbers(one) == _without_numbers(other), found.name
        _assert_logprobs_equal(one.logprobs, other.logprobs)


def _without_numbers(output: CompletionOutput) -> tuple[object, ...]:
    return output.index, output.token_ids, output.text, output.finish_reason, output.stop_reason


def _assert_logprobs_equal(
    found: Sequence[dict[int, Logprob] | None] | None,
    expected: Sequence[dict[int, Logprob] | None] | None,
) -> None:
    if found is None or expected is None:
        assert found is expected
        return
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if one is None or other is None:
            assert one is other
            continue
        assert {i: entry.rank for i, entry in one.items()} == {
            i: entry.rank for i, entry in other.items()
        }
        assert [entry.logprob for entry in one.values()] == pytest.approx(
            [entry.logprob for entry in other.values()], abs=LOGPROB_TOLERANCE
        )
