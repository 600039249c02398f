"""LLMEngine: requests that are added one by one, and steps that return what is new."""

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Self

from pagewire.offline.engine_args import EngineArgs
from pagewire.offline.llm import LLM
from pagewire.offline.output_stream import output_stream
from pagewire.offline.outputs import RequestOutput
from pagewire.offline.prompts import Prompt, prompt_requests, with_priorities
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams


@dataclass(slots=True, eq=False)
class _Request:
    future: "Future[None] | None" = None


class LLMEngine:
    """A loop over a model on this machine, as vLLM's engine has it. Not for several threads.

    The scheduler plans its own steps; `step` here waits for the next outputs.

    Args:
        model, **settings: As in LLM.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        self.llm = LLM(model, **settings)
        self._running: dict[str, _Request] = {}
        # The newest of each running request, so that it is bounded by them. Held while it changes.
        self._newest: dict[str, RequestOutput | Exception] = {}
        self._changed = threading.Condition()

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

        running = self._running[request_id] = _Request()

        async def follow() -> None:
            try:
                async for output in output_stream(
                    self.llm.client, request, model=self.llm.model_name, request_id=request_id
                ):
                    self._note(request_id, running, output)
            except Exception as error:  # noqa: BLE001
                # Raised again by `step`.
                self._note(request_id, running, error)

        running.future = self.llm.loop.start(follow())

    def _note(self, request_id: str, running: "_Request", item: RequestOutput | Exception) -> None:
        with self._changed:
            # A request that was aborted has no outputs, also where its name is in use again.
            if self._running.get(request_id) is running:
                self._newest[request_id] = item
                self._changed.notify()

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
        with self._changed:
            while self._running and not self._newest:
                self._changed.wait()
            outputs = [one for one in self._newest.values() if isinstance(one, RequestOutput)]
            for output in outputs:
                del self._newest[output.request_id]
                if output.finished:
                    del self._running[output.request_id]
            if outputs or not self._newest:
                # Errors wait for the next step: no output may be lost with them.
                return outputs
            name, error = self._newest.popitem()
            del self._running[name]
        assert isinstance(error, Exception)
        raise error

    def abort_request(self, request_id: str | list[str]) -> None:
        """End requests; no output of them follows. Unknown names have no effect."""
        for name in [request_id] if isinstance(request_id, str) else request_id:
            with self._changed:
                running = self._running.pop(name, None)
                self._newest.pop(name, None)
            if running is not None and running.future is not None:
                running.future.cancel()

    def close(self) -> None:
        """End all requests and processes."""
        self.abort_request(list(self._running))
        self.llm.close()
