"""Questions to one peer that were not answered yet, by their number."""

import asyncio
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class PendingAnswers(Generic[Answer]):
    """Whoever cancels what it waits for is forgotten; a late answer then changes nothing."""

    def __init__(self) -> None:
        self._futures: dict[int, asyncio.Future[Answer]] = {}

    def expect(self, query_id: int) -> "asyncio.Future[Answer]":
        """Return what will hold the answer; `query_id` is not asked at the moment."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._futures[query_id] = future
        future.add_done_callback(lambda _: self._futures.pop(query_id, None))
        return future

    def answer(self, query_id: int, answer: Answer) -> None:
        """Take an answer; one that nobody waits for is dropped."""
        future = self._futures.get(query_id)
        if future is not None and not future.done():
            future.set_result(answer)

    def give_up(self) -> None:
        """The peer is gone: cancel everything."""
        for future in list(self._futures.values()):
            future.cancel()
