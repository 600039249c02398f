"""Deadlines of requests in order of time. The caller passes `now` in."""

import heapq
from collections.abc import Mapping

from pagewire_scheduler.core.state.request import Request
from pagewire_shared.identity.ids import RequestId

_SLACK = 1024


class Deadlines:
    """A heap of (instant, request id).

    It holds no request: one that has ended would keep its prompt and output until its deadline.

    Args:
        requests: The requests that have not ended; others are skipped.
    """

    __slots__ = ("_heap", "_requests")

    def __init__(self, requests: Mapping[RequestId, Request]) -> None:
        self._heap: list[tuple[float, RequestId]] = []
        self._requests = requests

    def add(self, request: Request) -> None:
        """Enter one of the requests that has a deadline."""
        deadline = request.submission.deadline
        if deadline is None:
            return
        if len(self._heap) > 2 * len(self._requests) + _SLACK:
            self._heap = [entry for entry in self._heap if entry[1] in self._requests]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (deadline, request.request_id))

    def pop_expired(self, now: float) -> list[Request]:
        """Take out the requests whose deadline has passed and that have not ended."""
        expired: dict[RequestId, Request] = {}
        while self._heap and self._heap[0][0] <= now:
            request_id = heapq.heappop(self._heap)[1]
            request = self._requests.get(request_id)
            # One that was submitted again may have another deadline, which is in the heap, too.
            if request is not None and not request.is_finished and _is_over(request, now):
                expired[request_id] = request
        return list(expired.values())


def _is_over(request: Request, now: float) -> bool:
    deadline = request.submission.deadline
    return deadline is not None and deadline <= now
