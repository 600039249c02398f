"""Stores responses that have ended, bounded by count, bytes and age; the oldest are dropped first.
They are stored as JSON text, so that their size is known. The caller passes the time."""

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Limits of stored responses.

    Attributes:
        max_responses: Most responses; 0 keeps none.
        max_bytes: Most bytes of JSON text over all of them.
        max_seconds: Longest time after the end of a response.
    """

    max_responses: int
    max_bytes: int
    max_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """A response that has ended.

    Attributes:
        is_background: It went on without its client.
        body: The response object as JSON text.
        input_items: The conversation before the answer, a JSON list.
        events: Its events as they are sent, by their numbers; None where they are not kept.
    """

    tenant: str | None
    is_background: bool
    body: bytes
    input_items: bytes
    events: tuple[bytes, ...] | None = None

    @property
    def num_bytes(self) -> int:
        """Size of all its texts in bytes."""
        return (
            len(self.body) + len(self.input_items) + sum(len(event) for event in self.events or ())
        )


class ResponseStore:
    """Responses by id, in the order in which they ended."""

    def __init__(self, limits: StoreLimits) -> None:
        self._limits = limits
        self._kept: OrderedDict[str, tuple[float, StoredResponse]] = OrderedDict()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, response_id: str, response: StoredResponse, now: float) -> None:
        """Keep a response; `now` in seconds of a clock that never goes back. A response larger than
        the limit is not kept, and no other is dropped for it."""
        self.drop(response_id)
        if response.num_bytes <= self._limits.max_bytes and self._limits.max_responses > 0:
            self._kept[response_id] = now, response
            self.num_bytes += response.num_bytes
        self.expire(now)

    def has(self, response_id: str, now: float) -> bool:
        """Return whether a response is kept."""
        return self.get(response_id, now) is not None

    def get(self, response_id: str, now: float) -> StoredResponse | None:
        """Return a response, or None when it is gone."""
        self.expire(now)
        found = self._kept.get(response_id)
        return None if found is None else found[1]

    def drop(self, response_id: str) -> None:
        """Forget a response; again is allowed."""
        found = self._kept.pop(response_id, None)
        if found is not None:
            self.num_bytes -= found[1].num_bytes

    def expire(self, now: float) -> None:
        """Drop responses that are too old or too many."""
        while self._kept:
            response_id, (ended_at, _) = next(iter(self._kept.items()))
            is_too_much = (
                len(self._kept) > self._limits.max_responses
                or self.num_bytes > self._limits.max_bytes
            )
            if not is_too_much and now - ended_at < self._limits.max_seconds:
                return
            self.drop(response_id)
