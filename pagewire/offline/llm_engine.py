"""LLMEngine: requests that are added one by one, and steps that return what is new."""

import queue
from concurrent.futures import Future
from typing import Any, Self

from pagewire.offline.engine_args import EngineArgs
from pagewire.offline.llm import LLM
from pagewire.offline.output_stream import output_stream
from pagewire.offline.outputs import RequestOutput
from pagewire.offline.prompts import Prompt, prompt_requests, with_priorities
from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.sampling.params import SamplingParams


class LLMEngine:
    """A loop over a model on this machine, as vLLM's engine has it. Not for several threads.

    The scheduler plans its own steps; `step` here waits for the next outputs.

    Args:
        model, **settings: As in LLM.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        self.llm = LLM(model, **settings)
        self._running: dict[str, Future[None]] = {}
        self._outputs: queue.SimpleQueue[tuple[str, RequestOutput | PagewireError]] = (
            queue.SimpleQueue()
        )

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> Self:
        """Start a model with the keywords in `engine_args`."""
        return cls(**engine_args.settings)

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        priority: int = 0,
    ) -> None:
        """Send a request.

        Args:
            request_id: Name of its outputs and for `abort_request`.
            prompt: A text, {"prompt": text} or {"prompt_token_ids": ids}.
            params: None for the model's defaults and at most 16 tokens.
            priority: From -100 to 100; lower is earlier.

        Raises:
            InvalidRequestError: The prompt has no such form, or the name is in use.
        """
        if request_id in self._running:
            raise InvalidRequestError(f"request_id: {request_id!r} runs", field="request_id")
        [request] = with_priorities(prompt_requests(prompt, params), priority)

        async def follow() -> None:
            try:
                async for output in output_stream(
                    self.llm.client, request, model=self.llm.model_name, request_id=request_id
                ):
                    self._outputs.put((request_id, output))
            except PagewireError as error:
                self._outputs.put((request_id, error))

        self._running[request_id] = self.llm.loop.start(follow())

    def has_unfinished_requests(self) -> bool:
        """Whether a request has not ended."""
        return bool(self._running)

    def get_num_unfinished_requests(self) -> int:
        """Return the number of requests that have not ended."""
        return len(self._running)

    def step(self) -> list[RequestOutput]:
        """Wait for the next outputs and return the newest of each request; empty without requests.

        Raises:
            PagewireError: A request failed; it is no longer one of the running ones.
        """
        newest: dict[str, RequestOutput] = {}
        while self._running and not newest:
            self._take(newest, self._outputs.get())
            while not self._outputs.empty():
                self._take(newest, self._outputs.get())
        return list(newest.values())

    def _take(
        self, newest: dict[str, RequestOutput], item: tuple[str, RequestOutput | PagewireError]
    ) -> None:
        request_id, output = item
        if request_id not in self._running:
            return  # it was aborted
        if isinstance(output, PagewireError):
            del self._running[request_id]
            raise output
        newest[request_id] = output
        if output.finished:
            del self._running[request_id]

    def abort_request(self, request_id: str | list[str]) -> None:
        """End requests; no output of them follows. Unknown names have no effect."""
        for name in [request_id] if isinstance(request_id, str) else request_id:
            task = self._running.pop(name, None)
            if task is not None:
                task.cancel()

    def close(self) -> None:
        """End all requests and processes."""
        self.abort_request(list(self._running))
        self.llm.close()
