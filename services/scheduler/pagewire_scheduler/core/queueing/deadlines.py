"""Deadlines of requests in order of time. The caller passes `now` in."""

import heapq
import itertools

from pagewire_scheduler.core.state.request import Request

_SLACK = 1024


class Deadlines:
    """A heap of (instant, number, request); requests that ended early are skipped.

    The number keeps requests from being compared: a request that is submitted again has its old
    arrival.
    """

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._numbers = itertools.count()

    def add(self, request: Request, num_live: int) -> None:
        """Enter a request that has a deadline; `num_live` bounds the ended requests in the heap."""
        deadline = request.submission.deadline
        if deadline is None:
            return
        if len(self._heap) > 2 * num_live + _SLACK:
            self._heap = [entry for entry in self._heap if not entry[2].is_finished]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (deadline, next(self._numbers), request))

    def pop_expired(self, now: float) -> list[Request]:
        """Take out the requests whose deadline has passed and that have not ended."""
        expired = []
        while self._heap and self._heap[0][0] <= now:
            request = heapq.heappop(self._heap)[2]
            if not request.is_finished:
                expired.append(request)
        return expired
