"""Sends many requests in few calls, with a bound on what is under way, and collects the answers."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pagewire.client.batch_answers import BatchPart, BatchRequest
from pagewire.client.client import AsyncClient
from pagewire.client.client_convert import chat_request, complete_request, given_params
from pagewire.client.events import Closed
from pagewire.offline.offline_batch import CONNECT_SECONDS, MAX_ATTEMPTS
from pagewire.offline.outputs import OutputCollector
from pagewire.offline.prompts import GenerationRequest
from pagewire_shared.errors import PagewireError, UnavailableError

MAX_ITEMS: Final = 32
"""Most requests of a call: a call costs little more than a request then."""
MAX_BYTES: Final = 1024 * 1024
"""Size of a call of several requests."""


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """The events of one answer, and the text of the prompt of a conversation."""

    collector: OutputCollector
    prompt: str | None


class WholeAnswers:
    """One run of many requests to one model. Serves one call of `run`."""

    def __init__(
        self,
        client: AsyncClient,
        model: str,
        requests: Sequence[GenerationRequest],
        on_answer: Callable[[int, WholeAnswer], None],
    ) -> None:
        """Create the run.

        Args:
            client: Client of the only frontend.
            model: Served name.
            requests: What to ask; parameters have their seeds.
            on_answer: Called with the number of a request and its answer.
        """
        self._client = client
        self._model = model
        self._requests = requests
        self._on_answer = on_answer
        self._waiting = deque(range(len(requests)))
        self._attempts = [0] * len(requests)
        self._num_running = 0
        self._change = asyncio.Event()

    async def run(self, concurrency: int) -> None:
        """Run all requests, at most `concurrency` at once.

        The first error ends all requests. A request whose server goes away is asked again.
        """
        most = min(MAX_ITEMS, concurrency)
        calls: set[asyncio.Task[None]] = set()
        try:
            while self._waiting or calls:
                # A call for each answer that comes would be a call of one request.
                while self._waiting and self._num_running + most <= concurrency:
                    task = asyncio.create_task(self._call(self._take(most)))
                    task.add_done_callback(lambda _: self._change.set())
                    calls.add(task)
                await self._change.wait()
                self._change.clear()
                for task in [task for task in calls if task.done()]:
                    calls.remove(task)
                    task.result()
        finally:
            for task in calls:
                task.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    def _take(self, most: int) -> dict[int, BatchRequest]:
        """Take at most so many requests from the queue, by their numbers."""
        taken: dict[int, BatchRequest] = {}
        num_bytes = 0
        while self._waiting and len(taken) < most:
            number = self._waiting[0]
            message = self._message(self._requests[number])
            num_bytes += message.ByteSize()
            if taken and num_bytes > MAX_BYTES:
                break
            self._waiting.popleft()
            taken[number] = message
        self._num_running += len(taken)
        return taken

    def _message(self, request: GenerationRequest) -> BatchRequest:
        source: Any = request.source
        if request.is_chat:
            options: Any = {
                **request.chat_options,
                "model": request.model or self._model,
                "priority": request.priority,
            }
            return chat_request(source, request.params, options)
        return complete_request(
            source, request.params, request.model or self._model, priority=request.priority
        )

    async def _call(self, asked: dict[int, BatchRequest]) -> None:
        """Ask for answers; requests without one go back to the queue."""
        numbers = list(asked)
        answers = {number: self._new_answer(number) for number in numbers}
        try:
            async for part in self._client.batch(list(asked.values())):
                number = numbers[part.index]
                if self._add(number, answers[number], part):
                    del answers[number]
            if answers:
                raise UnavailableError("the stream ended early")
        except UnavailableError as error:
            self._count_attempts(answers, error)
            await self._client.wait_connected(CONNECT_SECONDS)
            self._waiting.extendleft(reversed(answers))
        finally:
            self._num_running -= len(answers)

    def _new_answer(self, number: int) -> "_Answer":
        params = given_params(self._requests[number].params)
        has_prompt = params.prompt_logprobs is not None
        return _Answer(OutputCollector(params.n, params.logprobs is not None, has_prompt))

    def _add(self, number: int, answer: "_Answer", part: BatchPart) -> bool:
        """Take a part; return whether the request is over."""
        if part.error is not None:
            if not isinstance(part.error, UnavailableError):
                raise self._named(number, part.error)
            self._count_attempts([number], part.error)
            self._waiting.appendleft(number)
        else:
            answer.prompt = answer.prompt or part.prompt
            for event in part.events:
                answer.collector.add(event)
            if not (part.events and isinstance(part.events[-1], Closed)):
                return False
            self._on_answer(number, WholeAnswer(answer.collector, answer.prompt))
        self._num_running -= 1
        self._change.set()
        return True

    def _named(self, number: int, error: PagewireError) -> PagewireError:
        """Return the error with the prompt that it is about, where there are several."""
        if len(self._requests) > 1:
            what = "messages" if self._requests[number].is_chat else "prompts"
            error.message = f"{what}[{number}]: {error.message}"
        return error

    def _count_attempts(self, numbers: Iterable[int], error: UnavailableError) -> None:
        """Note that requests have failed. Raises `error` after the last attempt of one."""
        for number in numbers:
            self._attempts[number] += 1
            if self._attempts[number] >= MAX_ATTEMPTS:
                raise error


@dataclass(slots=True)
class _Answer:
    """An answer of which parts have come."""

    collector: OutputCollector
    prompt: str | None = None
