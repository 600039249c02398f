"""AsyncLLM: the offline API for an event loop, with outputs while they are generated."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from pagewire.client.client import AsyncClient
from pagewire.offline.engine_args import EngineArgs
from pagewire.offline.llm import LLM
from pagewire.offline.offline_batch import CONNECT_SECONDS
from pagewire.offline.output_stream import output_stream
from pagewire.offline.outputs import RequestOutput
from pagewire.offline.prompts import Prompt, prompt_requests, with_priorities
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams


class AsyncLLM:
    """A model on this machine for one event loop: the one of the first call.

    Args:
        model, **settings: As in LLM. The start blocks until the model is loaded.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        self.llm = LLM(model, **settings)
        self._client: AsyncClient | None = None
        self._running: dict[str, asyncio.Task[None]] = {}

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> Self:
        """Start a model with the keywords in `engine_args`."""
        return cls(**engine_args.settings)

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        *,
        priority: int = 0,
    ) -> AsyncIterator[RequestOutput]:
        """Yield the output so far after each piece; the last one has `finished`.

        Args:
            prompt: A text, {"prompt": text} or {"prompt_token_ids": ids}.
            sampling_params: None for the model's defaults and at most 16 tokens.
            request_id: Name for `abort`; drawn where none is given.
            priority: From -100 to 100; lower is earlier.

        Raises:
            InvalidRequestError: The prompt or a parameter cannot be accepted, or another request
                of this name runs.
        """
        name = request_id or uuid.uuid4().hex
        if name in self._running:
            raise InvalidRequestError(f"request_id: {name!r} runs already", field="request_id")
        [request] = with_priorities(prompt_requests(prompt, sampling_params), priority)
        client = await self._connected()
        newest: list[RequestOutput] = []
        changed = asyncio.Event()

        async def follow() -> None:
            async for output in output_stream(
                client, request, model=self.llm.model_name, request_id=name
            ):
                # A slow reader gets the newest, which has all that came before.
                newest[:] = [output]
                changed.set()

        task = self._running[name] = asyncio.create_task(follow())
        task.add_done_callback(lambda _: changed.set())
        try:
            while not task.done() or newest:
                await changed.wait()
                changed.clear()
                if newest:
                    yield newest.pop()
            if not task.cancelled():
                task.result()
        finally:
            del self._running[name]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def abort(self, request_id: str) -> None:
        """End a request; its iterator ends without another output. Unknown names have no effect."""
        task = self._running.get(request_id)
        if task is not None:
            task.cancel()

    async def check_health(self) -> None:
        """Raise UnavailableError unless the model answers."""
        await (await self._connected()).list_models()

    @property
    def is_running(self) -> bool:
        """Whether requests can be sent."""
        return not self.llm.is_closed

    @property
    def errored(self) -> bool:
        """Whether no request can be sent any more."""
        return self.llm.is_closed

    async def get_tokenizer(self) -> Any:
        """Return the tokenizer, as LLM.get_tokenizer."""
        return await asyncio.to_thread(self.llm.get_tokenizer)

    async def sleep(self, level: int = 1, mode: str = "keep") -> None:
        """Give the memory of the model back, as LLM.sleep."""
        await asyncio.to_thread(self.llm.sleep, level, mode)

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """Make the memory anew, as LLM.wake_up."""
        await asyncio.to_thread(self.llm.wake_up, tags)

    async def is_sleeping(self) -> bool:
        """Return whether a part of the memory was given back."""
        return await asyncio.to_thread(self.llm.is_sleeping)

    async def update_weights(
        self,
        path: str | None = None,
        tensors: Iterable[tuple[str, Any]] | None = None,
        *,
        version: str = "",
        mode: str = "wait",
    ) -> None:
        """Serve other weights of the same model, as LLM.update_weights."""
        change = partial(self.llm.update_weights, path, tensors, version=version, mode=mode)
        await asyncio.to_thread(change)

    async def start_profile(self) -> None:
        """Begin to profile the workers, as LLM.start_profile."""
        await asyncio.to_thread(self.llm.start_profile)

    async def stop_profile(self) -> list[Path]:
        """End the profile, as LLM.stop_profile."""
        return await asyncio.to_thread(self.llm.stop_profile)

    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of the workers' extension, as LLM.collective_rpc."""
        return await asyncio.to_thread(self.llm.collective_rpc, method, timeout, args, kwargs)

    def shutdown(self) -> None:
        """End all requests and processes."""
        for task in self._running.values():
            task.cancel()
        self.llm.close()

    async def _connected(self) -> AsyncClient:
        if self._client is None:
            self._client = AsyncClient(self.llm.cluster.grpc_address)
            await self._client.wait_connected(CONNECT_SECONDS)
        return self._client


AsyncLLMEngine = AsyncLLM
"""vLLM's older name."""
