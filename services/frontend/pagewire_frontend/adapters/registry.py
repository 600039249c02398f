"""The adapters of a frontend by name. Loading reads, checks and copies in a thread; the name then
stands for the new content, and open streams keep what they began with."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pagewire_frontend.adapters.adapter_use import AdapterUse
from pagewire_frontend.adapters.fits import AdapterFits, AdapterKey, check_late
from pagewire_frontend.adapters.store import ContentFolder
from pagewire_shared.adapters.adapter_folder import AdapterSummary
from pagewire_shared.adapters.flag_values import MAX_NAME_CHARS
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_shared.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    PagewireError,
)

_logger = logging.getLogger(__name__)

MAX_ADAPTERS: Final = 10_000
"""Names of adapters of one frontend."""

MAX_LOADS: Final = 64
"""Loads that wait for their turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAdapter:
    """An adapter under its name.

    Attributes:
        base_model: Served name of its model.
        path: Where it came from.
        rank: Its largest rank.
        num_bytes: Bytes of its files.
        loaded_at: Seconds since 1970.
    """

    name: str
    base_model: str
    path: str
    use: AdapterUse
    rank: int
    targets: tuple[str, ...]
    num_bytes: int
    loaded_at: int


class AdapterRegistry:
    """Adapters by name.

    Attributes:
        version: Grows with every change; `wait_changed` waits for one.
        on_load: Called after every load, with whether it succeeded.
        on_content: Called with the identity of the content of every load that succeeded.
        known_rank: Returns the largest rank that the workers of a model take; None while it has
            no worker.
        fits: Which adapters fit the models.
    """

    def __init__(
        self,
        store: ContentFolder | None,
        *,
        models: Iterable[str],
        taken_names: Iterable[str],
        address: str = "",
        bounds: AdapterBounds | None = None,
    ) -> None:
        """Create an empty registry.

        Args:
            store: The content; None where adapters are off.
            models: Served names of the models.
            taken_names: Names that no adapter may have.
            address: Where the content is served; empty for the files alone.
        """
        self.store = store
        self.version = 0
        self.on_load: Callable[[bool], None] = lambda is_loaded: None
        self.on_content: Callable[[bytes], None] = lambda adapter_id: None
        self.known_rank: Callable[[str], int | None] = lambda model: None
        self.fits = AdapterFits()
        self._models = list(models)
        self._taken = set(taken_names)
        self._address = address
        self._bounds = bounds or AdapterBounds()
        self._adapters: dict[str, NamedAdapter] = {}
        self._turn = asyncio.Lock()
        self._num_loading = 0
        self._changed = asyncio.Condition()

    def __iter__(self) -> Iterator[NamedAdapter]:
        return iter(sorted(self._adapters.values(), key=lambda adapter: adapter.name))

    def __len__(self) -> int:
        return len(self._adapters)

    def find(self, name: str) -> NamedAdapter | None:
        """Return the adapter of a name, or None."""
        return self._adapters.get(name)

    @property
    def ids(self) -> set[bytes]:
        """The identities of all content that a name stands for."""
        return {one.use.adapter_id for one in self._adapters.values()}

    async def load(
        self,
        name: str,
        path: Path,
        root: Path | None = None,
        *,
        base_model: str = "",
    ) -> NamedAdapter:
        """Let `name` stand for the adapter in a folder; the content under an earlier one stays for
        its streams.

        Args:
            root: Folder that links may lead to; None for `path`.
            base_model: Served name of the model; empty for the only one.

        Raises:
            InvalidRequestError: The name is taken by a model, or there are several models.
            AdapterError: The adapter cannot be used.
            OverloadedError: Too many wait, or the store is full.
        """
        try:
            adapter = await self._load(name, path, root, base_model)
        except PagewireError:
            self.on_load(False)
            raise
        self.on_load(True)
        self._forget(name)
        self._adapters[name] = adapter
        self.on_content(adapter.use.adapter_id)
        await self._note(
            f"loaded adapter {name!r} from {path}: {adapter.use.adapter_id.hex()[:16]}"
        )
        return adapter

    async def _load(
        self, name: str, path: Path, root: Path | None, base_model: str
    ) -> NamedAdapter:
        store, base_model = self._check(name, base_model)
        if self._num_loading >= MAX_LOADS:
            raise OverloadedError("too many adapters are being loaded")
        self._num_loading += 1
        try:
            await self._turn.acquire()
            job = asyncio.create_task(self._keep(store, path, root, base_model))
            try:
                summary = await asyncio.shield(job)
            except asyncio.CancelledError:
                # The thread cannot be stopped, so that its copy is noted all the same.
                job.add_done_callback(self._let_go)
                raise
        finally:
            self._num_loading -= 1
        return NamedAdapter(
            name=name,
            base_model=base_model,
            path=str(path),
            use=AdapterUse(
                summary.adapter_id, self._sources(summary.adapter_id), name, summary.rank
            ),
            rank=summary.rank,
            targets=summary.targets,
            num_bytes=summary.num_bytes,
            loaded_at=int(time.time()),
        )

    async def _keep(
        self, store: ContentFolder, path: Path, root: Path | None, base_model: str
    ) -> AdapterSummary:
        """Check and copy an adapter, which is pinned then; it ends the turn."""
        try:
            summary = await asyncio.to_thread(store.check, path, self._bounds, root)
            check_rank(base_model, summary.rank, self.known_rank(base_model))
            await self.fits.check(base_model, summary)
            if store.reserve(summary):
                await asyncio.to_thread(store.copy, path, summary, self._bounds, root)
                store.enter(summary)
            return summary
        finally:
            self._turn.release()

    def _let_go(self, job: "asyncio.Task[AdapterSummary]") -> None:
        """Unpin what a load that was cancelled has copied; its faults are logged."""
        if job.cancelled():
            return
        if (error := job.exception()) is not None:
            _logger.warning("a load of an adapter that was cancelled failed: %s", error)
        elif self.store is not None:
            self.store.unpin(job.result().adapter_id)

    async def unload(self, name: str) -> None:
        """Forget a name; open streams go on. Raises ModelNotFoundError."""
        if name not in self._adapters:
            raise ModelNotFoundError(
                f"The lora adapter '{name[:MAX_NAME_CHARS]}' cannot be found.", field="lora_name"
            )
        self._forget(name)
        await self._note(f"unloaded adapter {name!r}")

    def pin(self, use: AdapterUse | None) -> None:
        """Keep the content of an adapter for a request, until `unpin`.

        Raises:
            ModelNotFoundError: It was unloaded since the request named it, and is gone.
        """
        if use is not None and not (self.store is not None and self.store.pin(use.adapter_id)):
            raise ModelNotFoundError(f"the adapter {use.name!r} was unloaded")

    def unpin(self, use: AdapterUse | None) -> None:
        """Let the content go for a request that has ended."""
        if use is not None and self.store is not None:
            self.store.unpin(use.adapter_id)

    async def check_late(self, wait_until: Callable[[Callable[[], bool]], Awaitable[None]]) -> None:
        """Check all adapters again when workers send other shapes, until cancelled.

        Args:
            wait_until: Waits for a state that workers bring about.
        """
        await check_late(self.fits, self._folders, self._bounds, wait_until)

    def _folders(self) -> dict[AdapterKey, Path]:
        if self.store is None:
            return {}
        keys = ((one.base_model, one.use.adapter_id) for one in self._adapters.values())
        return {key: folder for key in keys if (folder := self.store.find(key[1])) is not None}

    async def wait_changed(self, version: int) -> int:
        """Wait until the version is another one; return it."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.version != version)
            return self.version

    def _check(self, name: str, base_model: str) -> tuple[ContentFolder, str]:
        if self.store is None:
            raise InvalidRequestError("adapters are off: start with --enable-lora", field=None)
        if not name or len(name) > MAX_NAME_CHARS or name in self._taken:
            raise InvalidRequestError(
                f"lora_name: {name[:MAX_NAME_CHARS]!r} is empty, too long, or the name of a model",
                field="lora_name",
            )
        if name not in self._adapters and len(self._adapters) >= MAX_ADAPTERS:
            raise OverloadedError(f"there are {MAX_ADAPTERS} adapters")
        if not base_model and len(self._models) == 1:
            return self.store, self._models[0]
        if base_model not in self._models:
            raise InvalidRequestError(
                f"base_model_name must be one of {', '.join(self._models[:8])}",
                field="base_model_name",
            )
        return self.store, base_model

    def _sources(self, adapter_id: bytes) -> tuple[str, ...]:
        assert self.store is not None, "an adapter was loaded without a store"
        files = f"file:{self.store.find(adapter_id)}"
        return (files, f"grpc:{self._address}") if self._address else (files,)

    def _forget(self, name: str) -> None:
        old = self._adapters.pop(name, None)
        if old is not None and self.store is not None:
            self.store.unpin(old.use.adapter_id)

    async def _note(self, what: str) -> None:
        _logger.info("%s", what)
        self.version += 1
        async with self._changed:
            self._changed.notify_all()


def check_rank(model: str, rank: int, most: int | None) -> None:
    """Raise InvalidRequestError for an adapter that the workers of `model` do not take.

    Args:
        most: Largest rank that they take; 0 for no adapters, None while no worker is there.
    """
    if most == 0:
        raise InvalidRequestError(
            f"no worker of {model} takes adapters: start workers with --enable-lora", field="model"
        )
    if most is not None and rank > most:
        raise InvalidRequestError(
            f"the adapter has rank {rank}, and workers of {model} take {most} at most "
            f"(--max-lora-rank)",
            field="model",
        )
