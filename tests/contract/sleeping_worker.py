"""A scripted worker that follows orders to sleep and to wake, by ending its attach."""

from dataclasses import dataclass, field
from typing import Any

from contract.scripted_worker import ScriptedWorker

from pagewire_protos.common.v1 import sleep_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_shared.errors import UnavailableError
from pagewire_shared.rpc.errors import to_detail

ASLEEP = sleep_pb2.MEMORY_STATE_ASLEEP


@dataclass
class SleepingWorker(ScriptedWorker):
    """Attaches again and again.

    Attributes:
        faults: Errors of its next wakes, first to last.
        orders: Orders to sleep and to wake.
        sleep: What its hello says.
    """

    can_sleep: bool = True
    sleep_after_ms: int = 0
    faults: list[str] = field(default_factory=list)
    orders: list[Any] = field(default_factory=list)
    sleep: sleep_pb2.WorkerSleep | None = None

    def hello(self) -> wa.WorkerHello:
        hello = super().hello()
        hello.can_sleep = self.can_sleep
        hello.sleep_after_ms = self.sleep_after_ms
        if self.sleep is not None:
            hello.sleep.CopyFrom(self.sleep)
        return hello

    async def run(self) -> None:
        while True:
            try:
                await super().run()
            except OverError:
                continue
            return

    async def _receive(self, call: Any, response: wa.AttachWorkerResponse) -> None:
        kind = response.WhichOneof("message")
        if kind == "sleep":
            self.orders.append(response.sleep)
            self.sleep = sleep_pb2.WorkerSleep(
                state=ASLEEP,
                level=response.sleep.level,
                num_bytes=77,
                wakes_on_request=response.sleep.wakes_on_request,
            )
            raise OverError
        if kind == "wake":
            self.orders.append(response.wake)
            await self._wake(call, list(response.wake.tags))
        else:
            await super()._receive(call, response)

    async def _wake(self, call: Any, tags: list[int]) -> None:
        assert self.sleep is not None
        if self.faults:
            error = UnavailableError(self.faults.pop(0))
            failed = sleep_pb2.WorkerSleep(
                state=ASLEEP, level=self.sleep.level, error=to_detail(error)
            )
            await self._write(call, wa.AttachWorkerRequest(sleep_changed=failed))
        elif tags == [sleep_pb2.MEMORY_TAG_WEIGHTS]:
            self.sleep.awake.extend(tags)
            await self._write(call, wa.AttachWorkerRequest(sleep_changed=self.sleep))
        else:
            self.sleep = None
            raise OverError


class OverError(Exception):
    """The worker ends an attach."""
