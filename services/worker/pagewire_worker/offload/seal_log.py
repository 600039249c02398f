"""Logs blocks without a right seal, at most once in ten seconds."""

import logging
import time
from collections.abc import Callable
from typing import Final

_logger = logging.getLogger(__name__)

_EVERY_SECONDS: Final = 10.0


class SealLog:
    """Counts blocks, and says from time to time how many there were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._says_at = clock()
        self._num = 0

    def refused(self, name: str, address: str, tier: str) -> None:
        """Note a block of a store that was not used."""
        self._num += 1
        now = self._clock()
        if now < self._says_at:
            return
        self._says_at = now + _EVERY_SECONDS
        _logger.error(
            "%d blocks came without a seal by the key of this cell, the last one %s from %s (%s):"
            " something else wrote them, or another --kv-key-file was in use",
            self._num,
            name,
            address,
            tier,
        )
        self._num = 0
