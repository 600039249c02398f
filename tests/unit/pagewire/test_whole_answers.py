"""Runs of many requests in few calls: what is under way at once, and what is asked again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from pagewire.client.batch_answers import BatchPart
from pagewire.client.events import Closed, Delta, Event, Finished, Opened, Timings, Usage
from pagewire.offline import whole_answers
from pagewire.offline.prompts import prompt_requests
from pagewire.offline.whole_answers import MAX_ITEMS, WholeAnswers
from pagewire_protos.frontend.v1.inference_pb2 import CompleteRequest
from pagewire_shared.errors import InvalidRequestError, OverloadedError, UnavailableError

AWAY = UnavailableError("the server went away")


def answer(text: str) -> list[Event]:
    return [
        Opened("ab", "m", (1,), 1),
        Delta(0, 0, [9], text.upper()),
        Finished(0, "length", "", None),
        Closed(Usage(1, 1, 0), Timings(0.0, 0.0, 0)),
    ]


@dataclass
class ScriptedClient:
    """Answers each text in capitals, in an order of its own.

    Attributes:
        fate: Returns the error of a text, or raises what breaks its call; None for an answer.
    """

    fate: Callable[[str], Exception | None] = lambda _: None
    calls: list[list[str]] = field(default_factory=list)
    num_running: int = 0
    most_running: int = 0
    num_reconnects: int = 0

    @property
    def asked(self) -> list[str]:
        return [text for call in self.calls for text in call]

    async def batch(self, requests: Sequence[CompleteRequest]) -> AsyncIterator[BatchPart]:
        texts = [request.text for request in requests]
        self.calls.append(texts)
        self.num_running += len(texts)
        self.most_running = max(self.most_running, self.num_running)
        left = len(texts)
        try:
            for index in sorted(range(len(texts)), key=lambda i: texts[i][::-1]):
                await asyncio.sleep(0)
                error = self.fate(texts[index])
                self.num_running -= 1
                left -= 1
                if error is not None:
                    yield BatchPart(index, [], error, None)
                    continue
                events = answer(texts[index])
                yield BatchPart(index, events[:2], None, None)
                yield BatchPart(index, events[2:], None, None)
        finally:
            self.num_running -= left

    async def wait_connected(self, _: float) -> None:
        self.num_reconnects += 1


def run(client: ScriptedClient, texts: Sequence[str], concurrency: int = 256) -> list[str]:
    found: dict[int, str] = {}

    def take(number: int, whole: whole_answers.WholeAnswer) -> None:
        assert number not in found
        found[number] = whole.collector.result(None).outputs[0].text

    requests = prompt_requests(list(texts), None)
    asyncio.run(WholeAnswers(client, "m", requests, take).run(concurrency))  # type: ignore[arg-type]
    return [found[number] for number in range(len(texts))]


TEXTS = [f"t{number}" for number in range(300)]
CAPITALS = [text.upper() for text in TEXTS]


@pytest.mark.parametrize("concurrency", [1, 10, 64, 256])
def test_every_request_is_answered_in_its_place(concurrency: int) -> None:
    client = ScriptedClient()
    assert run(client, TEXTS, concurrency) == CAPITALS
    assert client.most_running <= concurrency
    assert sorted(client.asked) == sorted(TEXTS)
    assert len(client.calls) <= len(TEXTS) // min(concurrency, MAX_ITEMS) + 1


def test_calls_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_answers, "MAX_BYTES", 1000)
    client = ScriptedClient()
    texts = [letter * 400 for letter in "abcdefg"]
    assert run(client, texts) == [text.upper() for text in texts]
    assert [len(call) for call in client.calls] == [2, 2, 2, 1]
    # A request that is larger goes alone, and no other one with it.
    client = ScriptedClient()
    assert run(client, ["a", "b" * 2000, "c"]) == ["A", "B" * 2000, "C"]
    assert [len(call) for call in client.calls] == [1, 1, 1]


def test_nothing_is_asked_for_no_requests() -> None:
    client = ScriptedClient()
    assert run(client, []) == []
    assert client.calls == []


def test_requests_of_a_broken_call_are_asked_again() -> None:
    broken: list[str] = []

    def fate(text: str) -> None:
        if text in ("t7", "t150") and broken.count(text) < 2:
            broken.append(text)
            raise AWAY

    client = ScriptedClient(fate)
    assert run(client, TEXTS, 64) == CAPITALS
    assert len(broken) == 4
    # One connection each time, and only what had no answer is asked again.
    assert client.num_reconnects == 4
    assert len(client.asked) < 300 + 4 * MAX_ITEMS


def test_a_request_that_is_refused_for_a_moment_is_asked_again_alone() -> None:
    seen: list[str] = []

    def fate(text: str) -> Exception | None:
        seen.append(text)
        return AWAY if text == "t3" and seen.count(text) < 3 else None

    client = ScriptedClient(fate)
    assert run(client, TEXTS) == CAPITALS
    assert [text for text in TEXTS if seen.count(text) > 1] == ["t3"]


@pytest.mark.parametrize("is_broken", [False, True])
def test_the_server_is_given_up_after_some_attempts(is_broken: bool) -> None:
    def fate(text: str) -> Exception | None:
        if text == "t3" and is_broken:
            raise AWAY
        return AWAY if text == "t3" else None

    client = ScriptedClient(fate)
    with pytest.raises(UnavailableError, match="went away"):
        run(client, TEXTS)
    assert client.asked.count("t3") == whole_answers.MAX_ATTEMPTS


@pytest.mark.parametrize("error", [InvalidRequestError("no", field="stop"), OverloadedError("no")])
def test_any_other_error_ends_all_requests(error: Exception) -> None:
    client = ScriptedClient(lambda text: error if text == "t40" else None)
    with pytest.raises(type(error)) as caught:
        run(client, TEXTS, 64)
    assert caught.value is error
    assert client.num_running == 0
    assert len(client.asked) < len(TEXTS)
