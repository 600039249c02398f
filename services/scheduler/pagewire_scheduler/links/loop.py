"""The step loop: the only caller that changes the core. It takes the events of all streams and
sends plans and tokens. It never waits, so a slow peer delays no other."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from pagewire_scheduler.core.data.events import Event
from pagewire_scheduler.core.data.settings import (
    CoreSettings,
    HandoffPolicy,
    OverloadLimits,
    PolicyName,
)
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.topology import ProbeOutcome, Topology
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_scheduler.core.queueing.adapter_slots import assign_slots
from pagewire_scheduler.core.queueing.enqueue import pop_requests
from pagewire_scheduler.links.driven_core import DrivenCore
from pagewire_scheduler.links.generation import Generation
from pagewire_scheduler.links.request_log import named
from pagewire_scheduler.links.sleep_desk import SleepDesk
from pagewire_scheduler.links.weights_desk import WeightsDesk
from pagewire_scheduler.peers.peers import (
    FrontendPeer,
    WorkerPeer,
    check_frontend,
    check_worker,
    models_beside,
)
from pagewire_shared.errors import PagewireError, UnavailableError
from pagewire_shared.identity.ids import DEFAULT_CELL, short
from pagewire_shared.kv.load import LoadAnswer
from pagewire_shared.steps.result import ListResult

TICK_SECONDS = 0.05
HEARTBEAT_SECONDS = 1.0

_logger = logging.getLogger(__name__)


class StepLoop:
    """Runs on one event loop; its methods are called by links and never wait.

    Attributes:
        driven: The core with its clock.
        core: That core.
        frontends: The attached frontends, by id.
        workers: The attached workers, by id.
        sleep_desk: Orders to sleep and to wake.
        weights_desk: Orders to exchange weights.
        on_planned: Called at the end of every turn of planning.
    """

    def __init__(
        self,
        *,
        is_caching: bool,
        lease_seconds: float,
        clock: Callable[[], float],
        limits: OverloadLimits | None = None,
        policy: PolicyName = "fcfs",
        tenant_weights: Mapping[str, float] | None = None,
        is_sharing_between_tenants: bool = False,
        is_load_forced: bool = False,
        asks_outside_stores: bool = True,
        handoff: HandoffPolicy = "auto",
        num_stores: int = 0,
        num_copies: int = 1,
        cell: str = DEFAULT_CELL,
        notes_cache_changes: bool = False,
    ) -> None:
        self.generation = Generation(cell)
        settings = CoreSettings(
            generation=self.generation.number,
            is_caching=is_caching,
            limits=limits or OverloadLimits(),
            policy=policy,
            tenant_weights=tenant_weights or {},
            lease_seconds=lease_seconds,
            is_sharing_between_tenants=is_sharing_between_tenants,
            is_load_forced=is_load_forced,
            asks_outside_stores=asks_outside_stores,
            handoff=handoff,
            num_stores=num_stores,
            num_copies=num_copies,
            notes_cache_changes=notes_cache_changes,
        )
        self.clock = clock
        self.frontends: dict[bytes, FrontendPeer] = {}
        self.driven = DrivenCore(settings, clock, self.frontends)
        self.core = self.driven.core
        self.is_sharing_between_tenants = is_sharing_between_tenants
        self.workers: dict[bytes, WorkerPeer] = {}
        self._probes: dict[int, asyncio.Future[ProbeOutcome]] = {}
        self.on_planned: Callable[[], None] = lambda: None
        self._is_planning_due = False
        self._num_turns = 0
        self.sleep_desk = SleepDesk(self.driven, self.workers, self._plan_soon)
        self.weights_desk = WeightsDesk(self.driven, self.workers, self.sleep_desk, self._plan_soon)

    def observe_generation(self, cell: str, highest_seen: int) -> None:
        """Take note of what a hello says about a cell's generations. Raises PeerRefusedError or
        UnavailableError for that peer alone."""
        self.generation.observe(cell, highest_seen)
        self.core.set_generation(self.generation.number)

    def begin_term(self, highest_seen: int) -> None:
        """Begin to plan as a new generation, above `highest_seen`. No peer is attached yet."""
        self.generation.renew(highest_seen)
        self.core.set_generation(self.generation.number)

    # Workers

    def attach_worker(self, peer: WorkerPeer) -> int:
        """Take a worker in place of an earlier stream of it; return the generation."""
        info = peer.info
        old = self.workers.get(info.worker_id)
        if old is not None:
            old.close(UnavailableError("the worker has attached again"))
        tokenizers = [frontend.info.tokenizers for frontend in self.frontends.values()]
        others = [peer.info for peer in self.workers.values()]
        check_worker(info, models_beside(info, others), tokenizers)
        generation = self.generation.issue()
        self.workers[info.worker_id] = peer
        _logger.info("worker %s serves %s", short(info.worker_id), info.model.name)
        self.driven.dispatch(self.driven.guard(lambda: self.core.attach_worker(info)))
        self.driven.send_models()
        self.sleep_desk.note_change()
        # After the caller has put its welcome into the outbox.
        self._plan_soon()
        return generation

    def detach_worker(self, peer: WorkerPeer) -> None:
        """Forget a worker whose stream has ended. A stream that was replaced changes nothing."""
        worker_id = peer.info.worker_id
        if self.workers.get(worker_id) is not peer:
            return
        del self.workers[worker_id]
        worker = self.core.workers[worker_id]
        is_back_soon = worker.duty.is_about_to_return
        why = "falls asleep or wakes" if is_back_soon else "is gone"
        _logger.info("worker %s %s, which ran %s", short(worker_id), why, named(worker.running))
        self.driven.dispatch(self.driven.guard(lambda: self.core.detach_worker(worker_id)))
        if is_back_soon:
            self.sleep_desk.expect_return()
        else:
            self.driven.send_models()
        self._plan_soon()

    def apply(self, peer: WorkerPeer, result: ListResult) -> None:
        """Take the answer to a plan. Raises WireError when it contradicts the plan."""
        worker_id = peer.info.worker_id
        if self.workers.get(worker_id) is not peer:
            return
        self.driven.dispatch(self.driven.guard(lambda: self.core.apply(worker_id, result)))
        has_work = bool(self.core.workers[worker_id].outstanding)
        peer.watch.advance(self.clock(), None, has_work=has_work)
        self._plan()

    def advance(self, peer: WorkerPeer, counter: int) -> None:
        """Take note of a worker's progress counter."""
        worker = self.core.workers.get(peer.info.worker_id)
        has_work = worker is not None and bool(worker.outstanding)
        peer.watch.advance(self.clock(), counter, has_work=has_work)

    def note_grammar(
        self, peer: WorkerPeer, grammar_id: bytes, error: PagewireError | None
    ) -> None:
        """Take the answer about a grammar."""
        worker_id = peer.info.worker_id
        if self.workers.get(worker_id) is peer:
            self.driven.dispatch(
                self.driven.guard(lambda: self.core.note_grammar(worker_id, grammar_id, error))
            )
            self._plan_soon()

    def watch_adapters(self, peer: WorkerPeer, on_wait: Callable[[float], None]) -> None:
        """Call `on_wait` with the seconds that each sequence there has waited for its adapter."""
        self.core.workers[peer.info.worker_id].aside.adapting.watch(self.clock, on_wait)

    def note_adapter(self, peer: WorkerPeer, load_id: int, error: PagewireError | None) -> None:
        """Take the answer to the load of an adapter."""
        worker_id = peer.info.worker_id
        if self.workers.get(worker_id) is peer:
            self.driven.dispatch(
                self.driven.guard(lambda: self.core.note_adapter(worker_id, load_id, error))
            )
            self._plan_soon()

    def note_load(self, peer: WorkerPeer, answer: LoadAnswer) -> None:
        """Take the answer to a load. Raises WireError when it contradicts the order."""
        worker_id = peer.info.worker_id
        if self.workers.get(worker_id) is peer:
            self.driven.guard(lambda: self.core.kv_caches.note_load(worker_id, answer))
            self._plan_soon()

    def drain(self, peer: WorkerPeer) -> None:
        """Give a worker that is to end nothing new; it may leave when it has nothing left."""
        worker_id = peer.info.worker_id
        if self.workers.get(worker_id) is peer:
            self.driven.guard(lambda: self.core.drain_worker(worker_id))
            _logger.info("worker %s drains", short(worker_id))
            self.driven.send_models()
            self._plan_soon()

    # Frontends

    def attach_frontend(self, peer: FrontendPeer) -> tuple[int, list[int], list[Event]]:
        """Take a frontend (back); return generation, resumed handles, what follows the welcome."""
        info = peer.info
        old = self.frontends.get(info.frontend_id)
        if old is not None:
            old.close(UnavailableError("the frontend has attached again"))
        check_frontend(info, [model for model, _ in self.core.models()])
        generation = self.generation.issue()
        self.frontends[info.frontend_id] = peer
        _logger.info("frontend %s attached", short(info.frontend_id))
        resumed, events = self.driven.guard(
            lambda: self.core.attach_frontend(
                info.frontend_id,
                info.held,
                is_same_generation=self.generation.is_held(info.cell, info.held_generation),
            )
        )
        self._plan_soon()
        return generation, resumed, events

    def detach_frontend(self, peer: FrontendPeer) -> None:
        """Start the lease of a frontend whose stream has ended."""
        frontend_id = peer.info.frontend_id
        if self.frontends.get(frontend_id) is not peer:
            return
        del self.frontends[frontend_id]
        _logger.info("frontend %s is gone", short(frontend_id))
        self.driven.guard(lambda: self.core.detach_frontend(frontend_id, self.clock()))

    def submit(self, peer: FrontendPeer, submission: Submission) -> None:
        """Take a request."""
        if self._is_current(peer):
            frontend_id = peer.info.frontend_id
            now = self.clock()
            self.driven.dispatch(
                self.driven.guard(lambda: self.core.submit(frontend_id, submission, now))
            )
            self._plan_soon()

    def abort(self, peer: FrontendPeer, handle: int, choice: int | None) -> None:
        """End a request or one choice of it."""
        if self._is_current(peer):
            frontend_id = peer.info.frontend_id
            self.driven.guard(lambda: self.core.abort(frontend_id, handle, choice))
            self._plan_soon()

    def reset_prefix_cache(self, model: str | None) -> int:
        """Forget cached prefixes of `model`, or of all; return the number of blocks."""
        num_blocks = self.driven.guard(lambda: self.core.kv_caches.reset(model))
        # Workers would offer the forgotten names again.
        self._plan_soon()
        return num_blocks

    # Operators

    def set_roles(self, worker_id: bytes, roles: frozenset[Role]) -> None:
        """Use an attached worker for these roles from now on, at least one."""
        self.driven.guard(lambda: self.core.set_roles(worker_id, roles))
        self.workers[worker_id].send_roles(roles)
        named = ", ".join(sorted(role.value for role in roles))
        _logger.info("worker %s is used for %s", short(worker_id), named)
        self.driven.send_models()
        self._plan_soon()

    def topology(self) -> Topology:
        """Return which workers there are, and which pairs of them exchange blocks."""
        return self.driven.guard(self.core.topology)

    def begin_probe(
        self, prefill: bytes, decode: bytes, timeout_seconds: float
    ) -> "tuple[int, asyncio.Future[ProbeOutcome]]":
        """Have blocks computed on one worker and moved to another; return the probe's id and its
        outcome. End it whatever happens.

        Raises:
            PagewireError: The pair exchanges nothing; nothing is held.
        """
        probe_id = self.driven.guard(
            lambda: self.core.probes.begin(prefill, decode, timeout_seconds)
        )
        outcome = asyncio.get_running_loop().create_future()
        self._probes[probe_id] = outcome
        self._plan_soon()
        return probe_id, outcome

    def end_probe(self, probe_id: int) -> None:
        """Let both workers' blocks go; also before it has an outcome."""
        self._probes.pop(probe_id, None)
        self.driven.guard(lambda: self.core.probes.end(probe_id))
        self._plan_soon()

    # Time

    async def run_clock(self) -> None:
        """Let time pass: deadlines, leases, liveness and heartbeats. Runs until cancelled."""
        last = last_beat = self.clock()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self.clock()
            lateness = now - last - TICK_SECONDS
            last = now
            self._tick(now, lateness if lateness > 10 * TICK_SECONDS else 0.0)
            if now - last_beat >= HEARTBEAT_SECONDS:
                last_beat = now
                self.driven.beat(self._num_turns)

    def _tick(self, now: float, lateness: float) -> None:
        self._num_turns += 1
        self.driven.dispatch(self.driven.guard(lambda: self.core.tick(now)))
        for worker in list(self.workers.values()):
            if lateness:
                worker.watch.forgive(lateness)
            elif worker.watch.is_stuck(now):
                _logger.warning("worker %s makes no progress", short(worker.info.worker_id))
                worker.close(UnavailableError("no progress; attach again"))
        self.sleep_desk.tick(now)
        self._plan()

    # Inside

    def _is_current(self, peer: FrontendPeer) -> bool:
        return self.frontends.get(peer.info.frontend_id) is peer

    def _plan_soon(self) -> None:
        # At the end of this turn of the event loop, so that a burst of submits shares a step.
        if not self._is_planning_due:
            self._is_planning_due = True
            asyncio.get_running_loop().call_soon(self._plan)

    def _plan(self) -> None:
        """Plan for the workers of which something has changed, and tell them what is new."""
        self._is_planning_due = False
        self._num_turns += 1
        for worker_id in self.core.due.take():
            peer = self.workers[worker_id]
            while (plan := self.driven.guard(partial(self.core.plan, worker_id))) is not None:
                peer.watch.start_work(self.clock())
                peer.send_plan(plan)
            for grammar_id, params in pop_requests(self.core.workers[worker_id]):
                peer.send_grammar(grammar_id, params)
            for load in self.driven.guard(partial(assign_slots, self.core.workers[worker_id])):
                peer.send_adapter(load)
            for order in self.core.kv_caches.take_loads(worker_id):
                peer.send_load(order)
            for load_id in self.core.kv_caches.take_cancelled_loads(worker_id):
                peer.send_cancel_load(load_id)
            if not peer.is_drained and self.core.is_drained(worker_id):
                peer.send_drained()
            self.sleep_desk.send_due(worker_id)
        if self.core.due.touched:
            self._plan_soon()  # planning for one has changed another
        for probe_id, outcome in self.core.probes.take_ended() if self._probes else ():
            waiting = self._probes.pop(probe_id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(outcome)
        self.weights_desk.note_turn()
        self.on_planned()
