"""Keeps the newest requests that have ended, so that an operator can ask where their time went."""

from collections import deque
from typing import Final

from pagewire_frontend.traces.request_record import RequestRecord
from pagewire_shared.errors import InvalidRequestError

MAX_REQUESTS: Final = 1024
MAX_CHOICES: Final = 4096
"""Of all requests together. A record has some hundred bytes, and as many per choice."""

MIN_DIGITS: Final = 8
"""Of a request id in hex; the log shows as many."""


class RequestHistory:
    """The newest requests, the oldest first. Used on the event loop."""

    def __init__(self) -> None:
        self._records: deque[RequestRecord] = deque()
        self._num_choices = 0

    def put(self, record: RequestRecord) -> None:
        """Keep a request, and forget the oldest that are too many."""
        self._records.append(record)
        self._num_choices += len(record.choices)
        while len(self._records) > MAX_REQUESTS or self._num_choices > MAX_CHOICES:
            self._num_choices -= len(self._records.popleft().choices)

    def find(self, name: str) -> RequestRecord:
        """Return the newest request with a label or an id; the slowest for an empty name.

        Raises:
            InvalidRequestError: There is no such request, or the digits are too few.
        """
        if not name:
            return self._slowest()
        for record in reversed(self._records):
            if record.label == name:
                return record
        if len(name) < MIN_DIGITS:
            raise InvalidRequestError(
                f"request: {name!r} is no x-request-id of a recent request; an id needs at least"
                f" {MIN_DIGITS} digits",
                field="request",
            )
        for record in reversed(self._records):
            if record.request_id.hex().startswith(name.lower()):
                return record
        raise InvalidRequestError(
            f"request: no {name!r} among the last {len(self._records)} that ended at this frontend",
            field="request",
        )

    def _slowest(self) -> RequestRecord:
        if not self._records:
            raise InvalidRequestError("request: none has ended at this frontend", field="request")
        return max(self._records, key=lambda record: record.seconds)
