"""Asks one worker on behalf of operators, and waits for its answer."""

import asyncio
from dataclasses import dataclass
from typing import Final

from pagewire_protos.common.v1 import worker_query_pb2
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.links.worker_link import WorkerLink
from pagewire_shared.errors import ModelNotFoundError, OverloadedError, UnavailableError
from pagewire_shared.identity.ids import find_worker, short

MAX_OPEN: Final = 64
"""Questions that wait for answers at once."""


class WorkerQuestions:
    """Asks the workers of a cell."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop
        self._num_queries = 0
        self._num_open = 0

    async def choose(self, worker: str | None, model: str | None) -> "list[CellWorker]":
        """Return the workers that are meant; all for None.

        Raises:
            InvalidRequestError: No worker, or several, have an id that begins so.
            ModelNotFoundError: No worker serves the model.
            UnavailableError: There is no worker.
        """
        workers = self._loop.workers
        if worker is not None:
            name = find_worker(worker, [one.hex() for one in workers])
            return [CellWorker(self, bytes.fromhex(name))]
        found = [one for one, peer in workers.items() if model in (None, peer.info.model.name)]
        if not found and model is not None:
            raise ModelNotFoundError(f"no worker serves {model!r}")
        if not found:
            raise UnavailableError("no worker is attached")
        return [CellWorker(self, one) for one in found]

    async def ask(
        self, worker_id: bytes, query: worker_query_pb2.WorkerQuery, seconds: float
    ) -> worker_query_pb2.WorkerAnswer:
        """Return the answer of a worker.

        Raises:
            OverloadedError: Too many questions wait.
            UnavailableError: The worker is gone, or does not answer in time.
        """
        peer = self._loop.workers.get(worker_id)
        if not isinstance(peer, WorkerLink):
            raise UnavailableError(f"worker {short(worker_id)} is gone")
        if self._num_open >= MAX_OPEN:
            raise OverloadedError("too many questions to workers wait for answers")
        self._num_queries += 1
        self._num_open += 1
        future = peer.ask_operator(self._num_queries, query)
        try:
            await asyncio.wait({future}, timeout=seconds)
            if not future.done():
                raise UnavailableError(
                    f"worker {short(worker_id)} does not answer within {seconds:g} s"
                )
            if future.cancelled():
                raise UnavailableError(f"worker {short(worker_id)} is gone, or is asked too much")
            return future.result()
        finally:
            self._num_open -= 1
            future.cancel()


@dataclass(frozen=True, slots=True)
class CellWorker:
    """A worker of a cell, to be asked."""

    questions: WorkerQuestions
    worker_id: bytes

    @property
    def name(self) -> str:
        """Its id in hex."""
        return self.worker_id.hex()

    async def ask(
        self, query: worker_query_pb2.WorkerQuery, seconds: float
    ) -> worker_query_pb2.WorkerAnswer:
        """Return its answer. Raises what WorkerQuestions.ask raises."""
        return await self.questions.ask(self.worker_id, query, seconds)
