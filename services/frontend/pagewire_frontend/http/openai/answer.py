"""Joins the sessions behind one HTTP answer to one stream of events over numbered choices, or to
one whole answer. Choices are numbered prompt by prompt."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.metrics.timeline import Timelines, joined
from pagewire_frontend.prompts.generation_request import (
    GenerationRequest,
    echo_text,
    without_tokens,
)
from pagewire_frontend.session.choice_order import ChoiceOrder, NumberedEvent
from pagewire_frontend.session.events import (
    Closed,
    Delta,
    Finished,
    OnText,
    PromptLogprobs,
    Usage,
    joined_versions,
)
from pagewire_frontend.session.journal_records import TokenLogprob
from pagewire_frontend.session.session import Session
from pagewire_shared.errors import PagewireError


@dataclass(slots=True)
class AnsweredPrompt:
    """A prompt as it may be shown with its answer; `logprobs` begins at its second token, because
    nothing predicts the first."""

    token_ids: Sequence[int]
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)


@dataclass(slots=True)
class WholeChoice:
    """A choice with all of its output."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finished: Finished | None = None


class Answer:
    """Open sessions, one per prompt. `close` it whatever happens."""

    def __init__(
        self,
        engine: Engine,
        sessions: Sequence[Session],
        prompts: Sequence[AnsweredPrompt],
        *,
        has_output: bool,
        is_ordered: bool = False,
    ) -> None:
        """Create the answer.

        Args:
            engine: Closes the sessions.
            sessions: One per prompt.
            prompts: The prompts in the same order.
            has_output: False drops the generated tokens: the client wants only the prompts.
            is_ordered: The events of all choices have one order, whenever they come.
        """
        self._engine = engine
        self._sessions = sessions
        self.prompts = prompts
        self._has_output = has_output
        self._num_open = len(sessions)
        counts = [session.num_choices for session in sessions]
        self.num_choices = sum(counts)
        """Choices over all prompts."""
        self._offsets = [0, *accumulate(counts)]
        self._on_ready: Callable[[], None] | None = None
        self._timelines: list[Timelines] = [()] * len(sessions)
        self.usage = Usage(0, 0, 0)
        is_ordered = is_ordered and self.num_choices > 1
        self._order = ChoiceOrder(self.num_choices) if is_ordered else None

    @property
    def sessions(self) -> Sequence[Session]:
        """The sessions, one per prompt."""
        return self._sessions

    @property
    def choices_per_prompt(self) -> int:
        """Choices of each prompt."""
        return self._sessions[0].num_choices

    @property
    def request_id(self) -> str:
        """Id of the answer, in hex."""
        return self._sessions[0].entry.request_id.hex()

    @property
    def is_over(self) -> bool:
        """Whether everything was taken; `usage` is complete then."""
        return self._num_open == 0

    def close(self) -> None:
        """Free the sessions, here and at their schedulers."""
        for session in self._sessions:
            self._engine.close(session)

    async def wait_first(self) -> None:
        """Wait until an event is ready; raise the error of a request that failed before."""
        if len(self._sessions) == 1:
            await self._sessions[0].wait_first()
            return
        waits = [asyncio.ensure_future(session.wait_first()) for session in self._sessions]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    def listen(self, on_ready: Callable[[], None], on_text: OnText | None = None) -> None:
        """Call `on_ready` whenever there are events to take, and at once if there are already;
        `on_text` as in `Session.listen`, for an answer with one choice."""
        self._on_ready = on_ready
        is_single = self.num_choices == 1 and self._has_output
        for session in self._sessions:
            session.listen(on_ready, on_text if is_single else None)

    def take(self) -> list[NumberedEvent]:
        """Return all ready events of all choices.

        Raises:
            PagewireError: A request failed, and all its events before that have been taken.
        """
        shown: list[NumberedEvent] = []
        for index, session in enumerate(self._sessions):
            offset = self._offsets[index]
            try:
                events = session.take()
            except PagewireError:
                if not shown:
                    raise
                # Ready events of the other sessions come first; the next take raises.
                assert self._on_ready is not None, "listen comes before take"
                self._on_ready()
                break
            for event in events:
                if isinstance(event, Delta):
                    if self._has_output:
                        shown.append((offset + event.choice, event))
                elif isinstance(event, Finished):
                    reported = event if self._has_output else without_tokens(event)
                    shown.append((offset + reported.choice, reported))
                elif isinstance(event, PromptLogprobs):
                    self.prompts[index].logprobs.extend(event.logprobs)
                elif isinstance(event, Closed):
                    self._num_open -= 1
                    self._count(index, event.usage)
        return shown if self._order is None else self._order.take(shown)

    async def events(self) -> AsyncIterator[NumberedEvent]:
        """Yield (choice number, event) until all choices ended; `usage` is complete then."""
        is_ready = asyncio.Event()
        self.listen(is_ready.set)
        while not self.is_over:
            await is_ready.wait()
            is_ready.clear()
            for item in self.take():
                yield item

    async def whole(self) -> list[WholeChoice]:
        """Return all choices, complete."""
        choices = [WholeChoice() for _ in range(self.num_choices)]
        is_ready = asyncio.Event()
        self._on_ready = is_ready.set
        for session in self._sessions:
            session.listen(is_ready.set, is_whole=True)
        while not self.is_over:
            await is_ready.wait()
            is_ready.clear()
            for number, event in self.take():
                choice = choices[number]
                choice.text += event.text
                if isinstance(event, Finished):
                    choice.finished = event
                else:
                    choice.token_ids.extend(event.token_ids)
                    choice.logprobs.extend(event.logprobs)
        return choices

    def _count(self, index: int, usage: Usage) -> None:
        self._timelines[index] = usage.timelines
        self.usage = Usage(
            self.usage.prompt_tokens + usage.prompt_tokens,
            self.usage.completion_tokens + (usage.completion_tokens if self._has_output else 0),
            self.usage.cached_tokens + usage.cached_tokens,
            joined(self.usage.cached_tokens_by_tier, usage.cached_tokens_by_tier),
            tuple(chain.from_iterable(self._timelines)),
            usage.predicted,
            joined_versions(self.usage.weights_version, usage.weights_version),
        )


async def open_answer(
    engine: Engine,
    requests: Sequence[GenerationRequest],
    *,
    has_echo: bool = False,
    has_output: bool = True,
) -> Answer:
    """Open one session per request, all or none. Raises what `Engine.open` raises.

    Args:
        engine: Opens them.
        requests: One per prompt.
        has_echo: The client wants the texts of the prompts.
        has_output: The client wants the generated text.
    """
    if len(requests) == 1:
        sessions = [await engine.open(requests[0])]
    else:
        sessions = await _open_all(engine, requests)
    prompts = [
        AnsweredPrompt(ids, echo_text(request, ids) if has_echo else "")
        for request, session in zip(requests, sessions, strict=True)
        for ids in [session.entry.prompt_token_ids]
    ]
    is_ordered = requests[0].is_split
    return Answer(engine, sessions, prompts, has_output=has_output, is_ordered=is_ordered)


async def _open_all(engine: Engine, requests: Sequence[GenerationRequest]) -> list[Session]:
    tasks = [asyncio.ensure_future(engine.open(request)) for request in requests]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and task.exception() is None:
                engine.close(task.result())
        raise
    return [task.result() for task in tasks]
