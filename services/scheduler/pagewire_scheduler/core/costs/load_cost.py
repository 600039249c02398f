"""Decides by measured times whether blocks are loaded from a store or computed.

A load is chosen if its estimate is at most half of the time to compute, and that half is its
deadline. A failed load thus adds at most half of that time. A link without measurements is tried,
or a fresh worker would never use a store.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pagewire_scheduler.core.costs.link_speed import OVERHEAD_SECONDS, LinkSpeed
from pagewire_shared.process.circuit import CircuitBreaker

MIN_BLOCKS: Final = 2
"""Shorter runs are computed."""

UNMEASURED_SECONDS: Final = 2.0
"""The deadline while nothing is measured."""

MIN_PROBE_SECONDS: Final = 30.0
MAX_PROBE_SECONDS: Final = 600.0
"""Time after which a link that was too slow is tried again; doubled each time."""

NUM_FAILURES: Final = 2
"""Failures in a row after which a link is not used for a while."""

MIN_OPEN_SECONDS: Final = 1.0
MAX_OPEN_SECONDS: Final = 30.0
"""How long a failing link is not used, at first and at most: each further failure doubles it."""

FAR: Final = 4
"""A load so many times as large as any before is tried, whatever small loads took."""

# Weight of the newest measurement in a moving average: about the last six count.
_WEIGHT: Final = 0.3
# Least tokens of a step that measures prefill; at least half of them must not be of decodes.
_MIN_PREFILL_TOKENS: Final = 16


class LoadReason(enum.Enum):
    """Why a load was chosen, or not."""

    FASTER = "faster"  # loaded
    UNMEASURED = "unmeasured"  # loaded
    PROBE = "probe"  # loaded, to see whether the link has become faster
    FORCED = "forced"  # loaded: the operator says so
    SHORT = "short"  # computed: too few blocks, or less than a load costs at least
    SLOWER = "slower"  # computed
    BROKEN = "broken"  # computed: the store fails

    @property
    def is_load(self) -> bool:
        """Whether the decision is to load."""
        return self in (
            LoadReason.FASTER,
            LoadReason.UNMEASURED,
            LoadReason.PROBE,
            LoadReason.FORCED,
        )


@dataclass(frozen=True, slots=True)
class LoadDecision:
    """A decision; `timeout` is in seconds, and 0 where nothing is loaded."""

    verdict: LoadReason
    timeout: float = 0.0


class PrefillSpeed:
    """Seconds that one prompt token costs a worker; None before a measurement."""

    __slots__ = ("seconds_per_token",)

    def __init__(self) -> None:
        self.seconds_per_token: float | None = None

    def note(self, num_tokens: int, num_sequences: int, seconds: float) -> None:
        """Take the time of a step; a step that mostly generates is ignored."""
        if num_tokens >= max(_MIN_PREFILL_TOKENS, 2 * num_sequences) and seconds > 0:
            self.seconds_per_token = _average(self.seconds_per_token, seconds / num_tokens)

    def seconds(self, num_tokens: int) -> float | None:
        """Return the seconds that `num_tokens` take, or None."""
        per_token = self.seconds_per_token
        return None if per_token is None else num_tokens * per_token


class StoreLink:
    """Measurements of the link from one store to one worker.

    Attributes:
        num_bytes_under_way: Bytes of loads ordered and not answered.
    """

    __slots__ = (
        "_max_bytes",
        "_next_probe",
        "_probe_seconds",
        "_speed",
        "breaker",
        "num_bytes_under_way",
    )

    def __init__(self) -> None:
        self.breaker = CircuitBreaker(
            max_failures=NUM_FAILURES,
            first_seconds=MIN_OPEN_SECONDS,
            max_seconds=MAX_OPEN_SECONDS,
        )
        self.num_bytes_under_way = 0
        self._speed = LinkSpeed()
        self._max_bytes = 0
        self._probe_seconds = MIN_PROBE_SECONDS
        self._next_probe = 0.0

    def measure(self, num_bytes: int, num_bytes_ahead: int, seconds: float, now: float) -> None:
        """Take the time of a load that waited for `num_bytes_ahead` bytes of other loads."""
        if num_bytes <= 0 or seconds <= 0:
            return
        self._speed.note(num_bytes + num_bytes_ahead, seconds)
        self._max_bytes = max(self._max_bytes, num_bytes)
        self._next_probe = max(self._next_probe, now + MIN_PROBE_SECONDS)

    def seconds(self, num_bytes: int) -> float | None:
        """Return the seconds that a load ordered now would take, or None."""
        return self._speed.seconds(self.num_bytes_under_way + num_bytes)

    def is_far(self, num_bytes: int) -> bool:
        """Whether the load is far larger than any before."""
        return num_bytes > FAR * self._max_bytes

    def is_probe_due(self, now: float) -> bool:
        """Whether a load may be tried although its estimate is too slow."""
        return now >= self._next_probe

    def allows_attempt(self, now: float) -> bool:
        """Whether the store works, as far as is known, or is to be tried again."""
        return self.breaker.allows_attempt(now)

    def begin(self, verdict: LoadReason, num_bytes: int, now: float) -> None:
        """Note a load that is ordered."""
        self.breaker.begin(now)
        self.num_bytes_under_way += num_bytes
        self._max_bytes = max(self._max_bytes, num_bytes)
        if verdict is LoadReason.PROBE:
            self._next_probe = now + self._probe_seconds
            self._probe_seconds = min(2 * self._probe_seconds, MAX_PROBE_SECONDS)
        elif verdict is LoadReason.FASTER:
            self._probe_seconds = MIN_PROBE_SECONDS


class LoadLink(Protocol):
    """The way that a load takes."""

    def allows_attempt(self, now: float) -> bool: ...
    def seconds(self, num_bytes: int) -> float | None: ...
    def is_far(self, num_bytes: int) -> bool: ...
    def is_probe_due(self, now: float) -> bool: ...


class SpreadLink:
    """The way of a load whose parts come from several stores, one after the other.

    Args:
        shares: (link, its share of the bytes), each link once.
    """

    def __init__(self, shares: Sequence[tuple[StoreLink, float]]) -> None:
        self._shares = shares

    def allows_attempt(self, now: float) -> bool:
        """Whether all stores may be asked."""
        return all(link.allows_attempt(now) for link, _ in self._shares)

    def seconds(self, num_bytes: int) -> float | None:
        """Return the seconds of all parts, or None where one is not known."""
        times = [link.seconds(int(num_bytes * share)) for link, share in self._shares]
        known = [time for time in times if time is not None]
        return sum(known) if len(known) == len(times) else None

    def is_far(self, num_bytes: int) -> bool:
        """Whether a part is far larger than any load from its store before."""
        return any(link.is_far(int(num_bytes * share)) for link, share in self._shares)

    def is_probe_due(self, now: float) -> bool:
        """Whether the stores may be tried although the estimate is too slow."""
        return all(link.is_probe_due(now) for link, _ in self._shares)


def choose(
    *,
    num_blocks: int,
    num_tokens: int,
    num_bytes: int,
    prefill: PrefillSpeed,
    link: LoadLink,
    now: float,
    is_forced: bool = False,
) -> LoadDecision:
    """Decide for `num_blocks` blocks of `num_tokens` tokens and `num_bytes` bytes.

    With `is_forced` they are loaded from any working store at any cost.
    """
    if is_forced:
        allows_attempt = link.allows_attempt(now)
        return (
            LoadDecision(LoadReason.FORCED, UNMEASURED_SECONDS)
            if allows_attempt
            else LoadDecision(LoadReason.BROKEN)
        )
    recompute, load = prefill.seconds(num_tokens), link.seconds(num_bytes)
    if num_blocks < MIN_BLOCKS or (recompute is not None and recompute / 2 <= OVERHEAD_SECONDS):
        return LoadDecision(LoadReason.SHORT)
    if not link.allows_attempt(now):
        return LoadDecision(LoadReason.BROKEN)
    if recompute is None or load is None:
        return LoadDecision(LoadReason.UNMEASURED, UNMEASURED_SECONDS)
    if load <= recompute / 2:
        return LoadDecision(LoadReason.FASTER, recompute / 2)
    if link.is_far(num_bytes):
        return LoadDecision(LoadReason.UNMEASURED, recompute / 2)
    if link.is_probe_due(now):
        return LoadDecision(LoadReason.PROBE, recompute / 2)
    return LoadDecision(LoadReason.SLOWER)


def _average(before: float | None, sample: float) -> float:
    return sample if before is None else before + _WEIGHT * (sample - before)
