"""One worker process: its stream to the scheduler, the plans that wait and the replica that runs
them. The rules of the stream are those of the worker's `_Attach`."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from simulation.configuration import BAD_ADAPTER
from simulation.model.naive import BAD_GRAMMAR
from simulation.processes.replica import Replica
from simulation.processes.stores import StorePort
from simulation.processes.streams import Stream

from pagewire_scheduler.core.state.adapters import SlotLoad
from pagewire_shared.errors import InvalidRequestError, PagewireError, UnavailableError
from pagewire_shared.identity.seen_generations import SeenGenerations
from pagewire_shared.kv.load import LoadAnswer
from pagewire_shared.sleep.state import MemoryState, SleepOrder, WorkerSleep
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepFailure
from pagewire_shared.weights.version import UpdateOrder


class WorkerProcess:
    """A worker that dials one cell for ever.

    Attributes:
        queue: Plans received and not run.
        compiling: Grammars asked for and not compiled: (id, text).
        adapting: Loads of adapters that have not ended.
        failure: How the next step fails, if it does.
        frozen_until: It runs no step before.
        is_small: It has fewer blocks than others.
        is_leaving: It asked to be drained and will end.
        has_left: It has ended.
        port: Its way to KV stores.
        last_answer: To the newest load that it answered.
        sleep: Its sleep, which each hello says; None while it is awake.
        failed_update: Its newest load of weights, if that failed; each hello says it.
        is_load_failing: Whether its next load of weights fails.
        has_new_memory: Whether it has exchanged its weights since its newest hello.
    """

    def __init__(
        self, number: int, replica: Replica, cell: Any, port: StorePort, *, is_small: bool
    ) -> None:
        self.number = number
        self.replica = replica
        self.cell = cell
        self.stream: Stream | None = None
        self.incarnation = 0
        self.generation = 0
        self.seen = SeenGenerations()
        self.queue: deque[StepPlan] = deque()
        self.compiling: list[tuple[bytes, str]] = []
        self.adapting: list[SlotLoad] = []
        self.failure: StepFailure | None = None
        self.frozen_until = 0.0
        self.is_small = is_small
        self.is_leaving = False
        self.has_left = False
        self.num_steps = 0
        self.port = port
        self.last_answer: LoadAnswer | None = None
        self.sleep: WorkerSleep | None = None
        self.failed_update: tuple[int, PagewireError] | None = None
        self.is_load_failing = self.has_new_memory = False

    @property
    def worker_id(self) -> bytes:
        return self.replica.info.worker_id

    @property
    def is_lasting(self) -> bool:
        """Whether it could do all the work there is."""
        return not (self.is_small or self.is_leaving)

    def dial(self, incarnation: int) -> None:
        """Open a stream and say hello with what is VALID here."""
        assert self.stream is None
        self.incarnation = incarnation
        self.has_new_memory = False
        self.generation = 0
        self._forget_work()
        self.stream = Stream("worker", self, self.cell)
        self.cell.connect(self.stream)
        info = replace(
            self.replica.info,
            incarnation=incarnation,
            sleep=self.sleep,
            failed_update=self.failed_update,
        )
        info = self.replica.held(info)
        self.stream.send_up((info, self.seen.cell, self.seen.highest))
        if self.is_leaving:
            self.stream.send_up("leaving")

    def lose(self) -> None:
        """The stream is over for this side: what waits is not run."""
        if self.stream is not None:
            self.stream.leave_down()
            self.stream = None
        self._forget_work()

    def receive(self, now: float) -> None:
        """Take the oldest message, or notice the end of the stream."""
        stream = self.stream
        assert stream is not None
        if not stream.down:
            stream.is_down_over = True
            self.lose()
            return
        message = stream.down.popleft()
        if isinstance(message, StepPlan):
            self._take_plan(message)
        elif message == "drained":
            assert self.is_leaving, "a worker is sent away that did not ask"
            self.has_left = True
            self.lose()
        elif message[0] == "sleep":
            self._fall_asleep(message[1])
        elif message[0] == "update":
            self._exchange_weights(message[1])
        elif message[0] == "wake":
            assert self.sleep is not None, "a worker is woken that is awake"
            self.sleep = None
            self.lose()
        elif message[0] == "compile":
            self.compiling.append(message[1:])
        elif message[0] == "adapter":
            self.adapting.append(message[1])
            self.replica.begin_adapter(message[1])
        elif message[0] == "load":
            self.port.receive(message[1], now)
            self.replica.begin_load(message[1])
        elif message[0] == "cancel_load":
            self.port.cancel(message[1])
        else:
            # Refuses, which nobody here expects, a generation that goes back.
            self.seen.meet(*message[1:])
            self.generation = message[2]
            self.replica.drop_slots()

    def _fall_asleep(self, order: SleepOrder) -> None:
        assert not self.queue, "a worker sleeps with steps under way"
        assert self.sleep is None, "a worker sleeps twice"
        self.lose()
        self.replica.drop_memory()
        self.sleep = WorkerSleep(
            state=MemoryState.ASLEEP, level=order.level, wakes_on_request=order.wakes_on_request
        )

    def _exchange_weights(self, order: UpdateOrder) -> None:
        assert not self.queue, "a worker exchanges its weights with steps under way"
        assert self.sleep is None, "a worker that sleeps exchanges its weights"
        self.lose()
        self.has_new_memory = True
        if self.is_load_failing:
            self.is_load_failing = False
            self.replica.drop_memory()
            error = UnavailableError("the weights cannot be loaded")
            self.failed_update = order.source.serial, error
        else:
            self.failed_update = None
            self.replica.exchange(order.source, order.fingerprint)

    def _forget_work(self) -> None:
        self.queue.clear()
        self.compiling.clear()
        self.adapting.clear()
        self.port.forget()
        self.last_answer = None

    def compile(self, index: int) -> None:
        """Compile one of the grammars asked for, in any order, and say so."""
        grammar_id, text = self.compiling.pop(index)
        error = None
        if text.startswith(BAD_GRAMMAR):
            error = InvalidRequestError("no grammar", field="structured_outputs")
        else:
            self.replica.grammars[grammar_id] = text
        if self.stream is not None:
            self.stream.send_up(("compiled", grammar_id, error))

    def adapt(self, index: int) -> None:
        """End one of the loads of adapters, in any order, and say so."""
        order = self.adapting.pop(index)
        error = None
        if order.adapter == BAD_ADAPTER:
            error = InvalidRequestError("no adapter", field="adapter")
        else:
            self.replica.adapters[order.slot] = order.adapter
        if self.stream is not None:
            self.stream.send_up(("adapted", order.load_id, error))

    def load(self, now: float, dice: Callable[[int], int]) -> LoadAnswer:
        """End one of its loads, and say so."""
        order, answer, came = self.port.finish(now, dice)
        self.replica.finish_load(order, came)
        self.last_answer = answer
        if self.stream is not None:
            self.stream.send_up(("loaded", answer))
        return answer

    def _take_plan(self, plan: StepPlan) -> None:
        assert self.generation, "a plan came before the welcome"
        if plan.generation < self.generation or plan.incarnation != self.incarnation:
            raise AssertionError("a plan of an old generation or another incarnation")
        self.queue.append(plan)

    def run(self) -> None:
        """Run the oldest plan and send what comes of it."""
        plan = self.queue.popleft()
        self.num_steps += 1
        failure, self.failure = self.failure, None
        answer = self.replica.run(plan, failure)
        if self.stream is not None:
            self.stream.send_up(("progress", self.num_steps))
            self.stream.send_up(answer)
