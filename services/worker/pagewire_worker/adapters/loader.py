"""Loads adapters into slots, beside steps: from memory, a folder, another process or a KV store."""

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
from pagewire_shared.errors import DeadlineError, PagewireError, UnavailableError
from pagewire_shared.exhaustion import fault_of
from pagewire_worker.adapters import metrics
from pagewire_worker.adapters.sources import AdapterSource, sources_in_order
from pagewire_worker.adapters.warm import WarmAdapter, WarmAdapters
from pagewire_worker.backend.adapters import AdapterSlots

_logger = logging.getLogger(__name__)

Fetch = Callable[[str, bytes, AdapterBounds, float | None], Awaitable[AdapterContent]]
"""(address, identity, bounds, longest silence in seconds) -> content; raises PagewireError."""

STALL_SECONDS: Final = 5.0
"""How long a source may send next to nothing while others could be asked."""

NUM_LOADS: Final = 2
"""Loads at once; others wait, so that few contents are in memory beside the warm ones."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOrder:
    """An order to load an adapter; see LoadAdapter of worker_attach.proto.

    Attributes:
        stores: Addresses of the KV stores, which are asked last.
    """

    adapter_id: bytes
    slot: int
    sources: tuple[str, ...]
    timeout_seconds: float
    stores: tuple[str, ...] = ()


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
            raise fault_of(error, f"loading an adapter failed: {error}") from error

    async def _load(self, order: AdapterOrder, fetch: Fetch) -> bool:
        found, kind = self._warm.find(order.adapter_id), metrics.MEMORY
        if found is None:
            found, kind = await self._read(order, fetch)
        await self._fill(order.slot, found)
        in_use = {*self._slots.held.values()}
        self._warm.add(found, in_use)
        metrics.LOADS.labels(kind).inc()
        return kind == metrics.MEMORY

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

    async def _read(self, order: AdapterOrder, fetch: Fetch) -> tuple[WarmAdapter, str]:
        """Return the content, and the kind of its source."""
        faults: dict[AdapterSource, PagewireError] = {}
        sources = sources_in_order(order.sources, order.stores)
        for source in sources:
            # The last one may take all the time that is left.
            stall_seconds = STALL_SECONDS if source is not sources[-1] else None
            try:
                content = await self._read_from(source, order, fetch, stall_seconds)
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
                if faults:
                    _logger.info(
                        "adapter %s is from %s; %s", found.hex()[:16], source, _shown(faults)
                    )
                return WarmAdapter(content, summary), source.kind
            faults[source] = AdapterError(
                f"its content has the hash {found.hex()[:16]}", "adapter_id"
            )
        raise _unreadable(order, faults)

    async def _read_from(
        self,
        source: AdapterSource,
        order: AdapterOrder,
        fetch: Fetch,
        stall_seconds: float | None,
    ) -> AdapterContent:
        if source.kind == metrics.FOLDER:
            folder = Path(source.place)
            return await self._in_thread(lambda: read_adapter_files(folder, self._bounds))
        if not source.kind:
            raise AdapterError("a source begins with file: or grpc:", "sources")
        return await fetch(source.place, order.adapter_id, self._bounds, stall_seconds)

    async def _in_thread(self, job: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, job)


def _check(order: AdapterOrder, num_slots: int) -> None:
    if len(order.adapter_id) != ADAPTER_ID_BYTES:
        raise AdapterError(
            f"adapter_id: {len(order.adapter_id)} bytes, not {ADAPTER_ID_BYTES}", "adapter_id"
        )
    if order.slot >= num_slots:
        raise AdapterError(f"adapter_slot: {order.slot} does not exist", "adapter_slot")


def _unreadable(
    order: AdapterOrder, faults: Mapping[AdapterSource, PagewireError]
) -> PagewireError:
    text = f"adapter {order.adapter_id.hex()[:16]} cannot be read: "
    text += _shown(faults)[:800] or "no source was named"
    if faults and all(isinstance(error, AdapterError) for error in faults.values()):
        return AdapterError(text, "sources")
    return UnavailableError(text, field="sources")


def _shown(faults: Mapping[AdapterSource, PagewireError]) -> str:
    return "; ".join(f"{source}: {error}" for source, error in faults.items())
