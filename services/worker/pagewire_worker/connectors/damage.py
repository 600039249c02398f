"""Counts and logs blocks of an outside store that are not what they should be."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from pagewire_shared.identity.ids import short
from pagewire_worker.offload import metrics

_logger = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 10.0


class DamageLog:
    """Logs at most once in ten seconds.

    Args:
        store: Name of the store.
    """

    def __init__(self, store: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._says_at = clock()
        self._num = 0

    def note(self, names: Sequence[bytes]) -> None:
        """Take note of blocks that were not used."""
        metrics.DAMAGED_BLOCKS.labels("outside_store").inc(len(names))
        self._num += len(names)
        if not names or self._clock() < self._says_at:
            return
        self._says_at = self._clock() + _EVERY_SECONDS
        _logger.error(
            "%d blocks of %s were damaged or others than their keys say, the last one %s: they were"
            " computed",
            self._num,
            self._store,
            short(names[-1]),
        )
        self._num = 0
