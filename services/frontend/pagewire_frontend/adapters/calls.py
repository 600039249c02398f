"""Loads and unloads adapters by call, for HTTP, gRPC and the other frontends of the group."""

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Protocol

from pagewire_frontend.adapters.allowed_paths import AllowedPaths
from pagewire_frontend.adapters.registry import AdapterRegistry, NamedAdapter
from pagewire_shared.adapters.content_id import CONFIG_NAME
from pagewire_shared.errors import InvalidRequestError, ModelNotFoundError, PagewireError

_logger = logging.getLogger(__name__)


class AdapterPeer(Protocol):
    """Another frontend of the group."""

    name: str

    async def set_adapter(self, name: str, path: str | None, root: str, base_model: str) -> None:
        """Load an adapter there; without a path forget the name."""


class AdapterCalls:
    """The calls that change adapters. What this frontend has done, the others of the group do, too:
    a frontend that fails or does not answer is logged, and does not fail the call."""

    def __init__(
        self,
        adapters: AdapterRegistry,
        paths: AllowedPaths,
        peers: Sequence[AdapterPeer] = (),
    ) -> None:
        self.adapters = adapters
        self._paths = paths
        self._peers = peers

    async def load(
        self, name: str, path: str, *, base_model: str = "", is_in_place: bool = False
    ) -> NamedAdapter:
        """Let `name` stand for the adapter in the folder `path`.

        Args:
            is_in_place: Whether a name that is in use gets the new content.

        Raises:
            InvalidRequestError: The path is not allowed, the name is in use, or the adapter is at
                fault.
            ModelNotFoundError: The folder holds no adapter.
            OverloadedError: Too many wait, or the store is full.
        """
        if not is_in_place and self.adapters.find(name) is not None:
            raise InvalidRequestError(
                f"The lora adapter '{name}' has already been loaded. If you want to load the "
                "adapter in place, set 'load_inplace' to True.",
                field="lora_name",
            )
        folder, root = await asyncio.to_thread(self._paths.find, path)
        # Unlike Path.exists, it raises nothing: not for a path that is too long, either.
        if not await asyncio.to_thread(os.path.exists, folder / CONFIG_NAME):
            raise ModelNotFoundError(
                f"Loading lora {name[:255]} failed: No adapter found for {path[:1024]}",
                field="lora_path",
            )
        adapter = await self.adapters.load(name, folder, root, base_model=base_model)
        await self._pass_on(name, str(folder), str(root), adapter.base_model)
        return adapter

    async def unload(self, name: str) -> None:
        """Forget a name. Raises ModelNotFoundError."""
        await self.adapters.unload(name)
        await self._pass_on(name, None, "", "")

    async def _pass_on(self, name: str, path: str | None, root: str, base_model: str) -> None:
        calls = (one.set_adapter(name, path, root, base_model) for one in self._peers)
        for peer, outcome in zip(
            self._peers, await asyncio.gather(*calls, return_exceptions=True), strict=True
        ):
            if isinstance(outcome, PagewireError):
                _logger.warning("adapter %r at frontend %s: %s", name, peer.name, outcome.message)
            elif isinstance(outcome, BaseException):
                raise outcome
