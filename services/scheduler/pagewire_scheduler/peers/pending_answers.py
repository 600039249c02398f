"""Futures of the queries to one peer that are not answered yet, by query id."""

import asyncio
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class PendingAnswers(Generic[Answer]):
    """Pending queries. A cancelled future is forgotten, and its late answer changes nothing."""

    def __init__(self) -> None:
        self._futures: dict[int, asyncio.Future[Answer]] = {}

    def expect(self, query_id: int) -> "asyncio.Future[Answer]":
        """Return a future of the answer; `query_id` must not be pending."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._futures[query_id] = future
        future.add_done_callback(lambda _: self._futures.pop(query_id, None))
        return future

    def answer(self, query_id: int, answer: Answer) -> None:
        """Take an answer; an answer to no pending query is dropped."""
        future = self._futures.get(query_id)
        if future is not None and not future.done():
            future.set_result(answer)

    def give_up(self) -> None:
        """Cancel all pending queries: the peer is gone."""
        for future in list(self._futures.values()):
            future.cancel()
