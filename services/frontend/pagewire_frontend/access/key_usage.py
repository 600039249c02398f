"""Usage of each API key and its limits: requests and tokens of a minute, and requests open at once.
Counts in this process only; knows neither HTTP nor gRPC."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import OverloadedError
from pagewire_shared.identity.api_key import ApiKey

_MINUTE: Final = 60.0


class Bucket:
    """An amount that refills steadily, `size` in a minute, and never above `size`.

    The amount may be overdrawn: the tokens of a request are not known when it begins.
    """

    __slots__ = ("_at", "_level", "size")

    def __init__(self, size: int, now: float) -> None:
        self.size = size
        self._level = float(size)
        self._at = now

    def level(self, now: float) -> float:
        """Return the amount that is left."""
        self._level = min(self.size, self._level + (now - self._at) * self.size / _MINUTE)
        self._at = now
        return self._level

    def take(self, amount: float, now: float) -> None:
        """Use an amount, which may exceed the level."""
        self._level = self.level(now) - amount

    def seconds_until(self, level: float, now: float) -> float:
        """Return how long it takes to be at `level` again."""
        return max(0.0, (level - self.level(now)) * _MINUTE / self.size)


@dataclass(frozen=True, slots=True)
class Remaining:
    """The rest of a limit: its size, what remains, and the seconds until all of it is back."""

    name: str
    limit: int
    remaining: int
    reset_seconds: float


class KeyUsage:
    """The usage of one key. Its limits may change while it is used."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._max_streams: int | None = None
        self.num_streams = 0

    def limit(self, key: ApiKey, default_streams: int | None) -> None:
        """Apply the limits of `key`; `default_streams` where the key has no limit of streams."""
        limits = key.rights.limits
        self._requests = self._resized(self._requests, limits.requests_per_minute)
        self._tokens = self._resized(self._tokens, limits.tokens_per_minute)
        self._max_streams = limits.streams or default_streams

    def begin_request(self) -> None:
        """Count a call. Raises OverloadedError when the requests of this minute are used up."""
        now = self._clock()
        if self._requests is not None:
            if self._requests.level(now) < 1.0:
                raise _refusal("requests", self._requests, 1.0, now)
            self._requests.take(1.0, now)
        self._check_tokens(now)

    def open_stream(self) -> "Ticket":
        """Count a request that is open until its ticket is given back.

        Raises:
            OverloadedError: As many are open as may be, or the minute's tokens are used up.
        """
        if self._max_streams is not None and self.num_streams >= self._max_streams:
            raise OverloadedError(
                f"this API key has {self.num_streams} requests open at once, of at most "
                f"{self._max_streams}; try again when one has ended"
            )
        self._check_tokens(self._clock())
        self.num_streams += 1
        return Ticket(self)

    def remaining(self) -> list[Remaining]:
        """Return the rest of each limit of a minute that the key has."""
        now = self._clock()
        buckets = (("requests", self._requests), ("tokens", self._tokens))
        return [
            Remaining(name, one.size, max(0, int(one.level(now))), one.seconds_until(one.size, now))
            for name, one in buckets
            if one is not None
        ]

    def end_stream(self, num_tokens: int) -> None:
        """Count the end of a request of `num_tokens`, prompt and answers."""
        self.num_streams -= 1
        if self._tokens is not None:
            self._tokens.take(num_tokens, self._clock())

    def _check_tokens(self, now: float) -> None:
        if self._tokens is not None and self._tokens.level(now) <= 0.0:
            raise _refusal("tokens", self._tokens, 1.0, now)

    def _resized(self, bucket: Bucket | None, size: int | None) -> Bucket | None:
        if size is None or (bucket is not None and bucket.size == size):
            return None if size is None else bucket
        return Bucket(size, self._clock())


class Ticket:
    """One open request of a key; without a key it charges no usage."""

    __slots__ = ("_usage",)

    def __init__(self, usage: KeyUsage | None = None) -> None:
        self._usage = usage

    def give_back(self, num_tokens: int = 0) -> None:
        """End the request; again is allowed."""
        usage, self._usage = self._usage, None
        if usage is not None:
            usage.end_stream(num_tokens)


class KeyUsages:
    """Usage by key, of the keys that exist.

    Args:
        max_open_requests: Most open requests of the process.
        streams_per_key: Requests open at once of a key that has no limit of its own; None for half
            of all where there is more than one key.
    """

    def __init__(
        self,
        max_open_requests: int,
        streams_per_key: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._half = max(1, max_open_requests // 2)
        self._streams_per_key = streams_per_key
        self._clock = clock
        self._usages: dict[bytes, KeyUsage] = {}

    def set_keys(self, keys: Collection[ApiKey]) -> None:
        """Take the keys that exist from now on; known keys keep their usage."""
        default = self._streams_per_key
        if default is None and len({key.digest for key in keys}) > 1:
            default = self._half
        known, self._usages = self._usages, {}
        for key in keys:
            # Of a key that is listed twice the first counts, as for its name.
            if key.digest not in self._usages:
                usage = known.get(key.digest) or KeyUsage(self._clock)
                usage.limit(key, default)
                self._usages[key.digest] = usage

    def of(self, key: ApiKey) -> KeyUsage:
        """Return the usage of a key that is among those set."""
        return self._usages[key.digest]


def _refusal(what: str, bucket: Bucket, wanted: float, now: float) -> OverloadedError:
    seconds = bucket.seconds_until(wanted, now)
    return OverloadedError(
        f"the {bucket.size} {what} per minute of this API key are used up; try again later",
        retry_after_ms=max(1000, int(seconds * 1000) + 1),
    )
