"""The sessions behind one HTTP answer, as one stream of events over numbered choices, or as a
whole. Choices are numbered prompt by prompt.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from pagewire_frontend.engine import Engine
from pagewire_frontend.events import Closed, Delta, Finished, PromptLogprobs, Usage
from pagewire_frontend.generation_request import GenerationRequest
from pagewire_frontend.prompt_echo import echo_text, without_tokens
from pagewire_frontend.session import Session
from pagewire_frontend.token_logprob import TokenLogprob
from pagewire_shared.errors import PagewireError

_Item = tuple[int, Delta | Finished] | PagewireError | None
"""From a session's task: an event, why it failed, or its end."""


@dataclass(slots=True)
class AnsweredPrompt:
    """A prompt as it may be shown with its answer; `logprobs` begins at its second token, because
    nothing predicts the first."""

    token_ids: Sequence[int]
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)


@dataclass(slots=True)
class WholeChoice:
    """A choice with everything it said."""

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
    ) -> None:
        """Args: `has_output` false drops what was generated: only the prompts are wanted."""
        self._engine = engine
        self._sessions = sessions
        self.prompts = prompts
        self._has_output = has_output
        self.usage = Usage(0, 0, 0)

    @property
    def num_choices(self) -> int:
        """Choices over all prompts."""
        return sum(session.num_choices for session in self._sessions)

    @property
    def choices_per_prompt(self) -> int:
        """Choices of each prompt."""
        return self._sessions[0].num_choices

    @property
    def request_id(self) -> str:
        """Name of the answer, in hex."""
        return self._sessions[0].entry.request_id.hex()

    def close(self) -> None:
        """Free what is held, everywhere."""
        for session in self._sessions:
            self._engine.close(session)

    async def wait_first(self) -> None:
        """Wait until there is something to show; raise what went wrong before that."""
        waits = [asyncio.ensure_future(session.wait_first()) for session in self._sessions]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in done:
                wait.result()
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def events(self) -> AsyncIterator[tuple[int, Delta | Finished]]:
        """Yield (choice number, event) until all choices ended; `usage` is complete then."""
        if len(self._sessions) == 1:
            async for pair in self._events_of(0, 0):
                yield pair
            return
        # Of one place: what a slow reader leaves waits merged in the sessions.
        queue: asyncio.Queue[_Item] = asyncio.Queue(1)
        tasks = []
        offset = 0
        for index, session in enumerate(self._sessions):
            tasks.append(asyncio.create_task(self._pump(index, offset, queue)))
            offset += session.num_choices
        try:
            num_open = len(tasks)
            while num_open:
                item = await queue.get()
                if isinstance(item, PagewireError):
                    raise item
                if item is None:
                    num_open -= 1
                else:
                    yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def whole(self) -> list[WholeChoice]:
        """Return all choices, complete."""
        choices = [WholeChoice() for _ in range(self.num_choices)]
        async for number, event in self.events():
            choice = choices[number]
            choice.text += event.text
            if isinstance(event, Finished):
                choice.finished = event
            else:
                choice.token_ids.extend(event.token_ids)
                choice.logprobs.extend(event.logprobs)
        return choices

    async def _pump(self, index: int, offset: int, queue: "asyncio.Queue[_Item]") -> None:
        try:
            async for item in self._events_of(index, offset):
                await queue.put(item)
        except PagewireError as error:
            await queue.put(error)
        else:
            await queue.put(None)

    async def _events_of(
        self, index: int, offset: int
    ) -> AsyncIterator[tuple[int, Delta | Finished]]:
        async for event in self._sessions[index].events():
            if isinstance(event, PromptLogprobs):
                self.prompts[index].logprobs.extend(event.logprobs)
            elif isinstance(event, Closed):
                self._count(event.usage)
            elif isinstance(event, Delta | Finished):
                shown = event if self._has_output else without_tokens(event)
                if shown is not None:
                    yield offset + shown.choice, shown

    def _count(self, usage: Usage) -> None:
        self.usage = Usage(
            self.usage.prompt_tokens + usage.prompt_tokens,
            self.usage.completion_tokens + (usage.completion_tokens if self._has_output else 0),
            self.usage.cached_tokens + usage.cached_tokens,
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
        has_echo: The texts of the prompts are wanted.
        has_output: What is generated is wanted.
    """
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
    sessions = [task.result() for task in tasks]
    prompts = [
        AnsweredPrompt(ids, echo_text(request, ids) if has_echo else "")
        for request, session in zip(requests, sessions, strict=True)
        for ids in [session.entry.prompt_token_ids]
    ]
    return Answer(engine, sessions, prompts, has_output=has_output)
