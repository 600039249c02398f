"""Finds the salted key that a client has sent, beside the event loop.

A digest with salt takes tens of milliseconds on purpose, so what was found is kept, for right and
wrong keys.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from pagewire_shared.errors import OverloadedError
from pagewire_shared.identity.api_key import ApiKey, digest_of

_MAX_WAITING: Final = 64
_MAX_KEPT: Final = 4096


class SaltedKeys:
    """Which of the salted keys a key is."""

    def __init__(self) -> None:
        # SHA-256 of a key that was sent, to digests of what it was compared with and what it is.
        self._kept: dict[bytes, tuple[frozenset[bytes], bytes | None]] = {}
        self._turn = asyncio.Lock()
        self._num_waiting = 0

    async def find(self, key: str, known: Sequence[ApiKey]) -> ApiKey | None:
        """Return the one of `known` that is a key, or None.

        Raises:
            OverloadedError: Too many keys that were not seen before wait for their digests.
        """
        candidates = {
            one.digest: one for one in known if one.salted and key.startswith(one.salted.beginning)
        }
        if not candidates:
            return None
        seen, compared = digest_of(key), frozenset(candidates)
        kept = self._kept.get(seen)
        if kept is None or kept[0] != compared:
            kept = compared, await self._compare(key, list(candidates.values()))
            while len(self._kept) >= _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[seen] = kept
        return candidates[kept[1]] if kept[1] is not None else None

    async def _compare(self, key: str, candidates: list[ApiKey]) -> bytes | None:
        if self._num_waiting >= _MAX_WAITING:
            raise OverloadedError("too many new API keys at a time; try again", retry_after_ms=1000)
        self._num_waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(_matching, key, candidates)
        finally:
            self._num_waiting -= 1


def _matching(key: str, candidates: list[ApiKey]) -> bytes | None:
    return next((one.digest for one in candidates if one.salted and one.salted.is_of(key)), None)
