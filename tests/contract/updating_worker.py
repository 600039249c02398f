"""A scripted worker that exchanges its weights, by ending its attach."""

import asyncio
import hashlib
from dataclasses import dataclass, field
from typing import Any

from contract.sleeping_worker import OverError, SleepingWorker

from pagewire_protos.common.v1 import weights_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_shared.errors import InvalidRequestError, UnavailableError
from pagewire_shared.rpc.errors import to_detail


def fingerprint_of(path: str) -> bytes:
    return hashlib.sha256(path.encode()).digest()


@dataclass
class UpdatingWorker(SleepingWorker):
    """Has the weights of a path: no file is read.

    Attributes:
        misfits: Paths that it says it cannot serve.
        unloadable: Paths that it can serve, and then fails to load.
        updates: The orders.
        seconds: Time of a load.
    """

    misfits: set[str] = field(default_factory=set)
    unloadable: set[str] = field(default_factory=set)
    updates: list[wa.UpdateOrder] = field(default_factory=list)
    seconds: float = 0.0
    source: weights_pb2.WeightsSource = field(default_factory=weights_pb2.WeightsSource)
    failure: wa.WeightsFailure | None = None

    def hello(self) -> wa.WorkerHello:
        hello = super().hello()
        hello.layout.model_fingerprint = fingerprint_of(self.source.path)
        hello.weights.CopyFrom(self.source)
        if self.failure is not None:
            hello.weights_failure.CopyFrom(self.failure)
        return hello

    async def _receive(self, call: Any, response: wa.AttachWorkerResponse) -> None:
        kind = response.WhichOneof("message")
        if kind == "check_weights":
            query = response.check_weights
            answer = wa.WeightsChecked(query_id=query.query_id)
            if query.path in self.misfits:
                error = InvalidRequestError("path: lacks a tensor", field="path")
                answer.error.CopyFrom(to_detail(error))
            else:
                answer.fingerprint = fingerprint_of(query.path)
            await self._write(call, wa.AttachWorkerRequest(weights_checked=answer))
        elif kind == "update":
            self.updates.append(response.update)
            await asyncio.sleep(self.seconds)
            source = response.update.source
            if source.path in self.unloadable:
                error = UnavailableError("no memory")
                self.failure = wa.WeightsFailure(serial=source.serial, error=to_detail(error))
            else:
                assert response.update.fingerprint == fingerprint_of(source.path)
                self.source, self.failure = source, None
            raise OverError
        else:
            await super()._receive(call, response)
