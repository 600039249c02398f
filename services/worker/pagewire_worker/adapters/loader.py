"""Loads adapters into slots, beside steps: from memory, from a folder, or from another process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import (
    AdapterContent,
    check_content,
    read_adapter_files,
)
from pagewire_shared.adapters.content_id import ADAPTER_ID_BYTES, adapter_id_of
from pagewire_shared.adapters.tensor_header import MAX_WEIGHT_BYTES, AdapterBounds
from pagewire_shared.errors import DeadlineError, InternalError, PagewireError, UnavailableError
from pagewire_worker.adapters.warm import WarmAdapter, WarmAdapters
from pagewire_worker.backend.adapters import AdapterSlots

_logger = logging.getLogger(__name__)

Fetch = Callable[[str, bytes, AdapterBounds], Awaitable[AdapterContent]]
"""(address, identity, bounds) -> content; raises PagewireError."""

NUM_LOADS: Final = 2
"""Loads at once; others wait, so that few contents are in memory beside the warm ones."""

_T = TypeVar("_T")
_FILE, _GRPC = "file:", "grpc:"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOrder:
    """An order to load an adapter; see LoadAdapter of worker_attach.proto."""

    adapter_id: bytes
    slot: int
    sources: tuple[str, ...]
    timeout_seconds: float


class AdapterLoader:
    """Loads the adapters of one replica. Its methods run on one event loop.

    Args:
        slots: Where the adapters go.
        warm: Contents that stay in memory.
    """

    def __init__(self, slots: AdapterSlots, warm: WarmAdapters) -> None:
        self._slots = slots
        self._warm = warm
        self._bounds = AdapterBounds(
            max_rank=slots.limits.max_rank,
            max_bytes=min(MAX_WEIGHT_BYTES, warm.max_bytes),
        )
        self._threads = ThreadPoolExecutor(NUM_LOADS, thread_name_prefix="adapter")
        self._turns = asyncio.Semaphore(NUM_LOADS)
        self._filling: dict[int, asyncio.Future[None]] = {}

    @property
    def warm(self) -> WarmAdapters:
        """The contents in memory."""
        return self._warm

    @property
    def warm_ids(self) -> tuple[bytes, ...]:
        """The identities of the contents in memory."""
        return self._warm.ids

    def content(self, adapter_id: bytes) -> AdapterContent | None:
        """Return the content of an adapter, if it is in memory."""
        found = self._warm.find(adapter_id)
        return None if found is None else found.content

    def clear(self) -> None:
        """Empty all slots; contents stay in memory."""
        self._slots.clear()

    async def load(self, order: AdapterOrder, fetch: Fetch) -> bool:
        """Load an adapter into a slot; return whether its content was in memory.

        Raises:
            PagewireError: It cannot be used; nothing else is changed.
        """
        _check(order, self._slots.limits.num_slots)
        try:
            async with asyncio.timeout(order.timeout_seconds), self._turns:
                return await self._load(order, fetch)
        except PagewireError:
            raise
        except TimeoutError:
            raise DeadlineError(
                f"adapter {order.adapter_id.hex()[:16]} was not loaded in "
                f"{order.timeout_seconds:g} s",
                field="timeout_ms",
            ) from None
        except Exception as error:
            # An order without an answer would keep its slot, and its requests, for ever.
            _logger.exception("loading an adapter failed")
            raise InternalError(f"loading an adapter failed: {error}") from error

    async def _load(self, order: AdapterOrder, fetch: Fetch) -> bool:
        found = self._warm.find(order.adapter_id)
        was_warm = found is not None
        if found is None:
            found = await self._read(order, fetch)
        await self._fill(order.slot, found)
        in_use = {*self._slots.held.values()}
        self._warm.add(found, in_use)
        return was_warm

    async def _fill(self, slot: int, adapter: WarmAdapter) -> None:
        """Fill a slot; a load into it that was given up may still be at work there."""
        loop = asyncio.get_running_loop()
        while (before := self._filling.get(slot)) is not None:
            await asyncio.wait((before,))
        job = loop.run_in_executor(
            self._threads, self._slots.fill, slot, adapter.content, adapter.summary
        )
        self._filling[slot] = job
        job.add_done_callback(lambda done: self._end(slot, done))
        await asyncio.shield(job)

    def _end(self, slot: int, job: "asyncio.Future[None]") -> None:
        del self._filling[slot]
        if not job.cancelled():
            job.exception()

    async def _read(self, order: AdapterOrder, fetch: Fetch) -> WarmAdapter:
        faults: dict[str, PagewireError] = {}
        for source in order.sources:
            try:
                content = await self._read_from(source, order, fetch)
            except PagewireError as error:
                faults[source] = error
                continue
            found = await self._in_thread(partial(adapter_id_of, content.config, content.weights))
            if found == order.adapter_id:
                # Other sources have the same content, so that a fault of it is final.
                summary = await self._in_thread(
                    partial(check_content, content, self._bounds, adapter_id=found)
                )
                await self._in_thread(partial(self._slots.verify, content, summary))
                return WarmAdapter(content, summary)
            faults[source] = AdapterError(
                f"its content has the hash {found.hex()[:16]}", "adapter_id"
            )
        raise _unreadable(order, faults)

    async def _read_from(self, source: str, order: AdapterOrder, fetch: Fetch) -> AdapterContent:
        if source.startswith(_FILE):
            folder = Path(source.removeprefix(_FILE))
            return await self._in_thread(lambda: read_adapter_files(folder, self._bounds))
        if source.startswith(_GRPC):
            return await fetch(source.removeprefix(_GRPC), order.adapter_id, self._bounds)
        raise AdapterError("a source begins with file: or grpc:", "sources")

    async def _in_thread(self, job: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, job)


def _check(order: AdapterOrder, num_slots: int) -> None:
    if len(order.adapter_id) != ADAPTER_ID_BYTES:
        raise AdapterError(
            f"adapter_id: {len(order.adapter_id)} bytes, not {ADAPTER_ID_BYTES}", "adapter_id"
        )
    if order.slot >= num_slots:
        raise AdapterError(f"adapter_slot: {order.slot} does not exist", "adapter_slot")


def _unreadable(order: AdapterOrder, faults: Mapping[str, PagewireError]) -> PagewireError:
    reasons = "; ".join(f"{source}: {error}" for source, error in faults.items())
    text = f"adapter {order.adapter_id.hex()[:16]} cannot be read: "
    text += reasons[:800] or "no source was named"
    if any(isinstance(error, AdapterError) for error in faults.values()):
        return AdapterError(text, "sources")
    return UnavailableError(text, field="sources")
