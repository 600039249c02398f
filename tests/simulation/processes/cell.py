"""One scheduler process: the real step loop, core and frontend links, with streams in memory. Owns
what a gRPC server around them would own."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from simulation.checks.stream_watch import StreamWatch
from simulation.clock import Clock, VirtualLoop
from simulation.processes.stores import News
from simulation.processes.streams import Stream

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.convert.frontend import served_models
from pagewire_scheduler.core.data.stream_limits import StreamLimits
from pagewire_scheduler.core.data.worker_info import WorkerInfo
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_scheduler.core.state.adapters import SlotLoad
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.links.frontend_link import FrontendLink
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.peers.liveness import ProgressWatch
from pagewire_shared import PROTOCOL_MAX
from pagewire_shared.errors import PagewireError, WireError
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.kv.load import LoadAnswer, LoadOrder
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_shared.sleep.state import MemoryTag, SleepOrder
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_shared.weights.version import UpdateOrder


@dataclass(frozen=True, slots=True)
class Hooks:
    """Who is told what happens in a cell, before it happens.

    Attributes:
        plan: Of every plan, before it is sent.
        result: Of every answer, before it is applied.
        loss: Of every worker, before it is detached from a scheduler in its n-th life.
        load: Of every load, before it is sent.
        loaded: Of every answer to a load, before it is taken.
        stores: Asked what a scheduler is told of KV stores when it starts.
        streams: Of all messages to workers, before they are sent.
    """

    plan: Callable[["WorkerPeer", StepPlan], None]
    result: Callable[["WorkerPeer", Any], None]
    loss: Callable[[WorkerState, int], None]
    load: Callable[["WorkerPeer", LoadOrder], None]
    loaded: Callable[["WorkerPeer", LoadAnswer], None]
    stores: Callable[[], list[News]]
    streams: StreamWatch


class WorkerPeer:
    """The loop's view of a worker's stream; WorkerLink without messages."""

    def __init__(
        self, step_loop: StepLoop, info: WorkerInfo, stream: Stream, hooks: Hooks, life: int
    ) -> None:
        self._life = life
        self.info = info
        self.watch = ProgressWatch(step_loop.clock())
        self.stream = stream
        self.is_drained = self.is_to_sleep = False
        self.asked: set[bytes] = set()
        self._step_loop = step_loop
        self._hooks = hooks
        self._is_closed = False

    @property
    def core(self) -> SchedulerCore:
        return self._step_loop.core

    @property
    def is_current(self) -> bool:
        """Whether the loop hears this stream of the worker."""
        return self._step_loop.workers.get(self.info.worker_id) is self

    def send_plan(self, plan: StepPlan) -> None:
        self._hooks.plan(self, plan)
        self._hooks.streams.planned(self, plan)
        self.stream.send_down(plan)

    def send_grammar(self, grammar_id: bytes, params: StructuredOutputsParams) -> None:
        self.asked.add(grammar_id)
        self._hooks.streams.asked(self, grammar_id, params)
        self.stream.send_down(("compile", grammar_id, params.text))

    def send_adapter(self, order: SlotLoad) -> None:
        self._hooks.streams.adapter_ordered(self, order)
        self.stream.send_down(("adapter", order))

    def send_load(self, order: LoadOrder) -> None:
        self._hooks.load(self, order)
        self._hooks.streams.ordered(self, order)
        self.stream.send_down(("load", order))

    def send_cancel_load(self, load_id: int) -> None:
        self.stream.send_down(("cancel_load", load_id))

    def send_drained(self) -> None:
        self.is_drained = True
        self.stream.send_down("drained")

    def send_sleep(self, order: SleepOrder) -> None:
        if not self.is_to_sleep:
            self.is_to_sleep = True
            self.stream.send_down(("sleep", order))

    def send_update(self, order: UpdateOrder) -> None:
        if not self.is_to_sleep:
            self.is_to_sleep = True
            self.stream.send_down(("update", order))

    def send_wake(self, tags: Iterable[MemoryTag]) -> None:
        self.stream.send_down(("wake",))

    def close(self, error: PagewireError | None) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.stream.leave_up()
            if self.is_current:
                worker = self.core.workers[self.info.worker_id]
                self._hooks.loss(worker, self._life)
            self._step_loop.detach_worker(self)


class Cell:
    """A scheduler process that can die and return.

    Attributes:
        step_loop: The real thing; None while it is down.
    """

    def __init__(
        self,
        number: int,
        clock: Clock,
        settings: dict[str, Any],
        hooks: Hooks,
        limits: StreamLimits,
    ) -> None:
        self.number = number
        self.clock = clock
        self.settings = settings
        self.hooks = hooks
        self.limits = limits
        self.streams: list[Stream] = []
        self.step_loop: StepLoop | None = None
        self.loop = VirtualLoop(clock)
        self.last_tick = 0.0
        self.num_lives = 0
        self.news: deque[News] = deque()

    # Life.

    def start(self) -> None:
        self.loop = VirtualLoop(self.clock)
        self.loop.enter()
        self.num_lives += 1
        self.step_loop = StepLoop(
            clock=lambda: self.clock.now, cell=f"cell-{self.number}", **self.settings
        )
        core = self.step_loop.core
        core.settings = replace(core.settings, stream_limits=self.limits)
        self.news = deque(self.hooks.stores())

    def die(self) -> None:
        """Killed: what was written may still arrive."""
        self.step_loop = None
        for stream in self.streams:
            stream.leave_up()
        self.streams = []

    @property
    def is_up(self) -> bool:
        return self.step_loop is not None

    @property
    def core(self) -> SchedulerCore:
        assert self.step_loop is not None
        return self.step_loop.core

    def hear(self) -> None:
        """Take the oldest news of a KV store."""
        kind, store, names = self.news.popleft()
        if kind == "stored":
            self.core.stores.stored(store, names)  # type: ignore[arg-type]
        elif kind == "removed":
            self.core.stores.removed(store, names)  # type: ignore[arg-type]
        elif kind == "cleared":
            self.core.stores.cleared(store)
        else:
            self.core.stores.set_up(store, is_up=kind == "up")

    def send_loads(self) -> None:
        """Tell workers of loads, wherever the loop planned."""
        for worker_id, peer in self.step_loop.workers.items() if self.step_loop else ():
            for order in self.core.kv_caches.take_loads(worker_id):
                peer.send_load(order)
            for load_id in self.core.kv_caches.take_cancelled_loads(worker_id):
                peer.send_cancel_load(load_id)

    def connect(self, stream: Stream) -> None:
        self.streams.append(stream)

    def worker_stream(self, worker_id: bytes) -> Stream | None:
        """The stream over which plans go to a worker, if it is attached."""
        peer = self.step_loop.workers.get(worker_id) if self.step_loop else None
        return peer.stream if isinstance(peer, WorkerPeer) else None

    # What arrives.

    def receive(self, stream: Stream) -> None:
        """Take the oldest message of a stream, or notice its end."""
        self.loop.enter()
        if not stream.up:
            stream.is_up_over = True
            if stream in self.streams:
                self.streams.remove(stream)
            if stream.peer is not None:
                stream.peer.close(None)
            return
        message = stream.up.popleft()
        try:
            if stream.peer is None:
                self._welcome(stream, message)
            elif stream.kind == "worker":
                self._from_worker(stream.peer, message)
                self.send_loads()
            else:
                stream.peer._receive(message)
        except PagewireError as error:
            self._break(stream, error)

    def _break(self, stream: Stream, error: PagewireError) -> None:
        if isinstance(error, WireError) and not (self.is_odd or stream.is_odd):
            raise AssertionError(f"an honest {stream.kind} is cut off: {error.message}")
        if stream.peer is not None:
            stream.peer.close(error)
        stream.leave_up()

    is_odd = False
    """Set while a broken result is delivered on purpose."""

    def _welcome(self, stream: Stream, hello: Any) -> None:
        assert self.step_loop is not None
        if stream.kind == "worker":
            info, seen_cell, highest = hello
            self.step_loop.observe_generation(seen_cell, highest)
            stream.peer = WorkerPeer(
                self.step_loop, info, stream, self.hooks, 1000 * self.num_lives + self.number
            )
            generation = self.step_loop.attach_worker(stream.peer)
            stream.send_down(("welcome", self.step_loop.generation.cell, generation))
        else:
            self._welcome_frontend(stream, hello.hello)

    def _welcome_frontend(self, stream: Stream, hello: pb.FrontendHello) -> None:
        assert self.step_loop is not None
        link = stream.peer = FrontendLink(self.step_loop, hello, _no_audit)
        # The beginning of FrontendLink.run.
        generation, resumed, events = self.step_loop.attach_frontend(link)
        welcome = pb.Welcome(
            protocol=PROTOCOL_MAX,
            generation=generation,
            resumed_handles=pack_u32(resumed),
            served_models=served_models(self.step_loop.core.models()),
            cell=self.step_loop.generation.cell,
        )
        link._send(pb.AttachFrontendResponse(welcome=welcome))
        link.send_events(events)

    def _from_worker(self, peer: WorkerPeer, message: Any) -> None:
        assert self.step_loop is not None
        if isinstance(message, StepResult):
            self.step_loop.apply(peer, message)
        elif message == "leaving":
            self.step_loop.drain(peer)
        elif isinstance(message, tuple) and message[0] == "compiled":
            peer.asked.discard(message[1])
            self.step_loop.note_grammar(peer, *message[1:])
        elif isinstance(message, tuple) and message[0] == "adapted":
            self.step_loop.note_adapter(peer, *message[1:])
        elif isinstance(message, tuple) and message[0] == "loaded":
            if peer.is_current:
                self.hooks.loaded(peer, message[1])
                self.step_loop.driven.guard(
                    lambda: self.core.kv_caches.note_load(peer.info.worker_id, message[1])
                )
                self.step_loop._plan_soon()
        elif isinstance(message, tuple):
            self.step_loop.advance(peer, message[1])
        else:
            self.hooks.result(peer, message)
            self.step_loop.apply(peer, message.result)

    # Time and the loop.

    def turn(self) -> None:
        """Run the loop's callbacks and write what waits in outboxes."""
        if self.step_loop is None:
            return
        self.loop.drain()
        self.send_loads()
        for stream in self.streams:
            if stream.kind == "frontend" and stream.peer is not None:
                outbox = stream.peer._outbox
                while stream.is_written(self.clock.now) and (message := outbox._next()) is not None:
                    stream.send_down(message)
                if outbox.is_closed and not stream.is_cut:
                    stream.leave_up()

    def tick(self, lateness: float) -> None:
        if self.step_loop is not None:
            self.loop.enter()
            self.last_tick = self.clock.now
            self.step_loop._tick(self.clock.now, lateness)
            self.turn()


async def _no_audit() -> Any:
    raise AssertionError("no simulation asks for an audit")
