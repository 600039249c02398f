"""Answers of the group's model: what takes the place of HTTP bodies and engine sessions, between
the real recipes and takeovers and the model of a scheduler."""

import json
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

from simulation.group.schedulers import HeldRequest, ModelScheduler, letter

from pagewire_frontend.http.kept_streams.framing import SSE_FRAMING
from pagewire_frontend.http.kept_streams.making import Making
from pagewire_frontend.http.kept_streams.pins import draw_pins
from pagewire_frontend.http.kept_streams.recipe_keeper import KeptRequest, RecipeKeeper
from pagewire_frontend.http.kept_streams.recipes import Recipe
from pagewire_frontend.prompts.generation_request import GenerationRequest
from pagewire_frontend.session.choice_order import ChoiceOrder, NumberedEvent
from pagewire_frontend.session.events import Delta, Finished, FinishReason
from pagewire_shared.sampling.params import SamplingParams

PATH = "/model"
NUMERICS = b"n" * 32


class ModelAnswer:
    """The Remaking of one answer, and its first making."""

    def __init__(self, process: Any, body: bytes, making: Making) -> None:
        self._process = process
        self._scheduler: ModelScheduler = process.world.scheduler
        self._asked = json.loads(body)
        self._making = making
        self._request: HeldRequest | None = None

    def numerics(self) -> bytes:
        return NUMERICS if self._scheduler.is_exact else b""

    async def open(self) -> Sequence[Any]:
        await self._process.world.pause()
        params = SamplingParams(seed=self._asked["seed"])
        asked = GenerationRequest(model=None, prompt=None, params=params)  # type: ignore[arg-type]
        asked = self._making.applied(asked, 0)
        assert asked.params.seed is not None
        self._request = self._scheduler.submit(
            self._process,
            asked.request_id,
            asked.params.seed,
            must_be_held=asked.must_be_held,
            num_tokens=self._asked["num_tokens"],
            num_choices=self._asked["num_choices"],
        )
        entry = SimpleNamespace(model="tiny", adapter=None, prompt_token_ids=self._asked["prompt"])
        self._meter = SimpleNamespace(first_at=None, num_cached_tokens=0)
        return [SimpleNamespace(entry=entry, meter=self._meter, wait_first=self._wait_first)]

    async def _wait_first(self) -> None:
        assert self._request is not None
        while not any(self._request.counts):
            await self._request.changed.wait()
        self._meter.first_at, self._meter.num_cached_tokens = 0.0, self._request.num_cached

    async def events(self, keeper: RecipeKeeper | None) -> AsyncIterator[bytes]:
        request, pins = self._request, self._making.pins
        assert request is not None
        assert keeper is not None
        await self._wait_first()
        entry = SimpleNamespace(model="tiny", adapter=None, prompt_token_ids=self._asked["prompt"])
        session: Any = SimpleNamespace(entry=entry, meter=self._meter)
        await keeper.begun([session], self.numerics())
        yield _event(f"open {pins.request_id(0).hex()} {pins.created}")
        order, shown = ChoiceOrder(len(request.counts)), [0] * len(request.counts)
        while not all(count > request.num_tokens for count in shown):
            changed = request.changed
            for choice, event in order.take(_new_events(request, shown)):
                text = event.text if isinstance(event, Delta) else "end"
                yield _event(f"{choice} {text}")
            if not request.is_ended:
                await changed.wait()
        pinned = self._making.pinned_usage
        cached = pinned.cached_tokens if pinned.cached_tokens is not None else request.num_cached
        usage = pinned.body or f"usage {cached} {self._process.tag}".encode()
        await keeper.ended(usage)
        yield _event(usage.decode())
        yield _event("done")

    def close(self) -> None:
        if self._request is not None:
            self._scheduler.close(self._request, self._process)


def _new_events(request: HeldRequest, shown: list[int]) -> list[NumberedEvent]:
    """Return the events of what came since the last time; the end of a choice counts, too."""
    found: list[NumberedEvent] = []
    for choice, count in enumerate(request.counts):
        for position in range(shown[choice], count):
            text = letter(request.seed, choice, position)
            found.append((choice, Delta(choice, position, [0], text)))
        if count == request.num_tokens and shown[choice] <= count:
            found.append((choice, Finished(choice, FinishReason.LENGTH)))
            count += 1
        shown[choice] = max(shown[choice], count)
    return found


def _event(text: str) -> bytes:
    return b"data: " + text.encode() + b"\n\n"


class ModelSource:
    """The EventSource of a new answer."""

    framing = SSE_FRAMING

    def __init__(self, process: Any, body: bytes) -> None:
        self._process = process
        self._body = body
        self._pins = draw_pins()
        self._answer: ModelAnswer | None = None

    async def events(self, stream_id: str) -> AsyncIterator[bytes]:
        asked = KeptRequest(PATH, self._body, self._pins)
        keeper = RecipeKeeper(self._process.recipes, asked, stream_id)
        self._answer = ModelAnswer(self._process, self._body, Making(pins=self._pins))
        await self._answer.open()
        async for ready in self._answer.events(keeper):
            yield ready

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()


class ModelRemaker:
    """The Remaker of PATH."""

    framing = SSE_FRAMING

    def __init__(self, process: Any) -> None:
        self._process = process

    async def read(self, recipe: Recipe, making: Making) -> ModelAnswer:
        return ModelAnswer(self._process, recipe.body, making)
