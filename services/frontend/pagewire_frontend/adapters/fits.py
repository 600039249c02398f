"""Checks whether adapters fit the models of the workers, when they are loaded, and again when
workers send other shapes, such as the first worker after a start."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import AdapterSummary, check_adapter
from pagewire_shared.adapters.fit import check_fit
from pagewire_shared.adapters.model_shapes import ModelShapes
from pagewire_shared.adapters.tensor_header import AdapterBounds

_logger = logging.getLogger(__name__)

AdapterKey = tuple[str, bytes]
"""Served name of the model, and identity of the adapter."""


class AdapterFits:
    """The adapters that were checked, and those that do not fit. Used on the event loop.

    Attributes:
        known_shapes: Returns what an adapter has to fit, all of it, on the workers of a model;
            nothing while no worker has sent it.
    """

    def __init__(self) -> None:
        self.known_shapes: Callable[[str], tuple[ModelShapes, ...]] = lambda model: ()
        self._checked: dict[AdapterKey, tuple[ModelShapes, ...]] = {}
        self._misfits: dict[AdapterKey, AdapterError] = {}

    async def check(self, model: str, summary: AdapterSummary) -> None:
        """Raise AdapterError for an adapter that does not fit the workers of `model`."""
        shapes = self.known_shapes(model)
        for one in shapes:
            await asyncio.to_thread(check_fit, summary, one)
        key = model, summary.adapter_id
        self._checked[key] = shapes
        self._misfits.pop(key, None)

    def require(self, model: str, adapter_id: bytes) -> None:
        """Raise AdapterError for a request whose adapter was found not to fit."""
        misfit = self._misfits.get((model, adapter_id))
        if misfit is not None:
            raise AdapterError(misfit.message, misfit.field)

    def is_stale(self, key: AdapterKey) -> bool:
        """Return whether an adapter was checked for other shapes than those known now."""
        shapes = self.known_shapes(key[0])
        return bool(shapes) and self._checked.get(key) != shapes

    async def check_again(self, key: AdapterKey, folder: Path, bounds: AdapterBounds) -> None:
        """Check the adapter in a folder once more; one that does not fit is logged."""
        model, adapter_id = key
        shapes = self.known_shapes(model)
        try:
            summary = await asyncio.to_thread(check_adapter, folder, bounds, adapter_id=adapter_id)
            await self.check(model, summary)
        except AdapterError as error:
            self._misfits[key], self._checked[key] = error, shapes
            shown = adapter_id.hex()[:16]
            _logger.error("adapter %s does not fit %s: %s", shown, model, error.message)

    def keep_only(self, keys: set[AdapterKey]) -> None:
        """Forget all other adapters."""
        for known in (self._checked, self._misfits):
            for key in known.keys() - keys:
                del known[key]


async def check_late(
    fits: AdapterFits,
    folders: Callable[[], dict[AdapterKey, Path]],
    bounds: AdapterBounds,
    wait_until: Callable[[Callable[[], bool]], Awaitable[None]],
) -> None:
    """Check adapters again whenever workers send other shapes, until cancelled.

    Args:
        folders: Returns where the content of all adapters lies.
        wait_until: Waits for a state that workers bring about.
    """
    while True:
        await wait_until(lambda: any(map(fits.is_stale, folders())))
        found = folders()
        fits.keep_only({*found})
        for key, folder in found.items():
            if fits.is_stale(key):
                await fits.check_again(key, folder, bounds)
