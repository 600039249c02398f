"""The memory of a worker: its states with the legal moves, its parts by vLLM's names, and levels.

The names `weights` and `kv_cache` and the levels are those of vLLM's sleep mode (v0.8 to v0.13).
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import InvalidRequestError, PagewireError


class MemoryState(enum.Enum):
    """Whether a worker has its memory; the values appear in answers."""

    AWAKE = "awake"  # has weights and KV cache, and computes
    DRAINING = "draining"  # is to sleep: gets nothing new
    ASLEEP = "asleep"  # has given memory back
    WAKING = "waking"  # makes its memory anew

    def require_move(self, target: "MemoryState") -> "MemoryState":
        """Return `target`; asserts that the table has the move."""
        assert target in MOVES[self], f"no move from {self.value} to {target.value}"
        return target


MOVES: Final = {
    MemoryState.AWAKE: frozenset({MemoryState.DRAINING}),
    MemoryState.DRAINING: frozenset({MemoryState.ASLEEP}),
    MemoryState.ASLEEP: frozenset({MemoryState.WAKING}),
    # Back to ASLEEP when the wake failed, or when only a part of the memory was asked for.
    MemoryState.WAKING: frozenset({MemoryState.AWAKE, MemoryState.ASLEEP}),
}
"""A worker that is lost has no state: the one that replaces it starts awake."""


class MemoryTag(enum.Enum):
    """A part of the memory of a worker; the values are vLLM's tags."""

    WEIGHTS = "weights"
    KV_CACHE = "kv_cache"


ALL_TAGS: Final = frozenset(MemoryTag)


class SleepMode(enum.Enum):
    """What becomes of the sequences of a worker that is to sleep; the values are vLLM's modes."""

    KEEP = "keep"  # preempted after the steps under way; they go on elsewhere or after the wake
    WAIT = "wait"  # they run to their end first, or move to other workers


LEVELS: Final = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepOrder:
    """An order to sleep; `wakes_on_request` lets the next request wake the worker."""

    level: int = 1
    mode: SleepMode = SleepMode.KEEP
    wakes_on_request: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSleep:
    """The sleep of a worker; see WorkerSleep of sleep.proto.

    Attributes:
        awake: Parts that were made anew already.
        num_bytes: Bytes by which the memory of the process became smaller.
        error: Why the newest wake failed.
    """

    state: MemoryState
    level: int = 0
    awake: frozenset[MemoryTag] = frozenset()
    num_bytes: int = 0
    wakes_on_request: bool = False
    error: PagewireError | None = None


def check_level(level: int) -> int:
    """Return a level of sleep. Raises InvalidRequestError for others."""
    if level not in LEVELS:
        raise InvalidRequestError(f"level must be 1 or 2, not {level}", field="level")
    return level


def parse_mode(text: str) -> SleepMode:
    """Return a mode by its name. Raises InvalidRequestError."""
    if text == "abort":
        raise InvalidRequestError(
            "mode: no request is ended for the memory of a worker; there are keep and wait",
            field="mode",
        )
    try:
        return SleepMode(text)
    except ValueError:
        raise InvalidRequestError(
            f"mode must be keep or wait, not {text[:32]!r}", field="mode"
        ) from None


def parse_tags(names: Iterable[str]) -> frozenset[MemoryTag]:
    """Return the parts with these names, all parts for none. Raises InvalidRequestError."""
    tags = set()
    for name in names:
        try:
            tags.add(MemoryTag(name))
        except ValueError:
            raise InvalidRequestError(
                f"tags must be weights and kv_cache, not {name[:32]!r}", field="tags"
            ) from None
    return frozenset(tags) or ALL_TAGS
