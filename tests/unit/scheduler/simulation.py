"""A cell in one thread: the core, simulated workers and frontends whose streams break, driven by
dice."""

import random
from dataclasses import replace

from unit.scheduler.simulated_frontend import SimulatedFrontend, Stream, worker_info
from unit.scheduler.simulated_worker import SimulatedWorker

from pagewire_scheduler.core.audit import audit, check_integrity
from pagewire_scheduler.core.events import Event
from pagewire_scheduler.core.frontend_state import ENDED, Held
from pagewire_scheduler.core.request import Submission
from pagewire_scheduler.core.scheduler_core import CoreSettings, SchedulerCore
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.step import StepFailure
from pagewire_shared.ids import RequestId
from pagewire_shared.sampling import SamplingParams

EOS = 0


class Simulation:
    """Everything, and one method per thing that may happen."""

    def __init__(
        self,
        dice: random.Random,
        *,
        is_caching: bool = True,
        worker_changes: dict[str, object] | None = None,
        has_failures: bool = False,
    ) -> None:
        self.dice = dice
        self.now = 0.0
        self.core = SchedulerCore(
            CoreSettings(generation=7, is_caching=is_caching, max_num_waiting=30, lease_seconds=5.0)
        )
        self.worker_changes = worker_changes or {}
        self.workers: dict[bytes, SimulatedWorker] = {}
        self.salts: dict[bytes, bytes] = {}
        self.num_workers = self.num_requests = 0
        self.has_failures = has_failures
        model = worker_info(1, **self.worker_changes).model
        self.frontends = [
            SimulatedFrontend(bytes([i]) * 16, model, is_failing_allowed=has_failures)
            for i in (1, 2)
        ]
        for frontend in self.frontends:
            self.attach_frontend(frontend)
        self.attach_worker()

    # What may happen.

    def submit(self, frontend: SimulatedFrontend, submission: Submission) -> None:
        self.salts[submission.request_id] = submission.salt
        frontend.streams[submission.handle] = Stream(
            submission,
            [list(tokens) for tokens in submission.emitted],
            [State.FINISHED_STOPPED if end else None for end in submission.is_finished],
        )
        self._deliver(self.core.submit(frontend.frontend_id, submission))

    def submit_random(self) -> None:
        frontend = self._some_frontend()
        if frontend is None:
            return
        dice = self.dice
        self.num_requests += 1
        # Few distinct beginnings, so that prefixes meet.
        prompt = [1 + dice.randrange(2)] * dice.choice([1, 3, 4, 5, 8, 16, 17, 30])
        prompt += [dice.randrange(2, 6) for _ in range(dice.choice([0, 0, 1, 4, 9]))]
        num_choices = dice.choice([1, 1, 1, 2, 3])
        sampling = SamplingParams(
            max_tokens=dice.choice([None, 1, 2, 5, 20]),
            min_tokens=dice.choice([0, 0, 1]),
            stop_token_ids=dice.choice([(), (), (7,)]),
            ignore_eos=dice.random() < 0.5,
        )
        self.submit(
            frontend,
            Submission(
                request_id=RequestId(self.num_requests.to_bytes(16, "little")),
                epoch=0,
                handle=self._handle(frontend),
                model="tiny",
                prompt_token_ids=tuple(prompt),
                emitted=((),) * num_choices,
                is_finished=(False,) * num_choices,
                sampling=sampling,
                eos_token_ids=(EOS,),
                salt=dice.choice([b"", b"", b"other"]),
                priority=dice.choice([0, 0, 0, 1, -1]),
                deadline=self.now + 20 if dice.random() < 0.05 else None,
            ),
        )

    def abort_random(self) -> None:
        frontend = self._some_frontend()
        if frontend is None or not frontend.streams:
            return
        handle = self.dice.choice(list(frontend.streams))
        stream = frontend.streams[handle]
        choice = self.dice.randrange(len(stream.ends)) if self.dice.random() < 0.3 else None
        self.core.abort(frontend.frontend_id, handle, choice)
        for index in range(len(stream.ends)):
            if choice in (None, index):
                stream.ends[index] = State.FINISHED_ABORTED
        if not stream.is_open:
            del frontend.streams[handle]

    def run_worker(self) -> None:
        busy = [worker for worker in self.workers.values() if worker.queue]
        if busy:
            worker = self.dice.choice(busy)
            worker.run(failure=self._failure(worker))

    def deliver_result(self) -> None:
        ready = [worker for worker in self.workers.values() if worker.results]
        if ready:
            worker = self.dice.choice(ready)
            self._deliver(self.core.apply(worker.info.worker_id, worker.deliver()))

    def attach_worker(self) -> None:
        if len(self.workers) >= 3:
            return
        self.num_workers += 1
        worker = SimulatedWorker(worker_info(self.num_workers, **self.worker_changes), self.salts)
        self.workers[worker.info.worker_id] = worker
        self._deliver(self.core.attach_worker(worker.info))

    def lose_worker(self) -> None:
        if self.workers:
            worker_id = self.dice.choice(list(self.workers))
            worker = self.workers.pop(worker_id)
            self.core.detach_worker(worker_id)
            if self.dice.random() < 0.5:
                self._reattach(worker)

    def break_frontend(self) -> None:
        frontend = self._some_frontend()
        if frontend is not None:
            frontend.is_attached = False
            frontend.inbox.clear()
            self.core.detach_frontend(frontend.frontend_id, self.now)

    def return_frontend(self) -> None:
        away = [frontend for frontend in self.frontends if not frontend.is_attached]
        if away:
            self.attach_frontend(self.dice.choice(away))

    def attach_frontend(self, frontend: SimulatedFrontend) -> None:
        """Attach with everything held; what is not resumed comes again in a newer epoch."""
        frontend.is_attached = True
        streams = {self._handle(frontend): stream for stream in frontend.streams.values()}
        frontend.streams = streams
        held = [
            Held(
                stream.submission.request_id,
                stream.submission.epoch,
                handle,
                tuple(
                    len(tokens) if end is None else ENDED
                    for tokens, end in zip(stream.tokens, stream.ends, strict=True)
                ),
            )
            for handle, stream in streams.items()
        ]
        is_same = frontend.held_generation == self.core.settings.generation
        resumed, events = self.core.attach_frontend(
            frontend.frontend_id, held, is_same_generation=is_same
        )
        frontend.held_generation = self.core.settings.generation
        self._deliver(events)
        for handle, stream in list(streams.items()):
            if handle not in resumed:
                del frontend.streams[handle]
                self._resubmit(frontend, stream)

    def _resubmit(self, frontend: SimulatedFrontend, stream: Stream) -> None:
        again = replace(
            stream.submission,
            epoch=stream.submission.epoch + 1,
            handle=self._handle(frontend),
            emitted=tuple(tuple(tokens) for tokens in stream.tokens),
            is_finished=tuple(end is not None for end in stream.ends),
        )
        self.submit(frontend, again)

    def receive_event(self) -> None:
        frontend = self._some_frontend()
        if frontend is not None and frontend.inbox:
            frontend.receive()

    def pass_time(self) -> None:
        self.now += self.dice.choice([0.1, 1.0, 3.0])
        self._deliver(self.core.tick(self.now))

    def plan(self) -> None:
        for worker_id, worker in self.workers.items():
            while (plan := self.core.plan(worker_id)) is not None:
                worker.receive(plan)

    # Runs.

    def step(self) -> None:
        """Let one random thing happen, then check everything."""
        actions = {
            self.submit_random: 12,
            self.abort_random: 2,
            self.run_worker: 40,
            self.deliver_result: 40,
            self.receive_event: 40,
            self.attach_worker: 2,
            self.lose_worker: 1,
            self.break_frontend: 1,
            self.return_frontend: 3,
            self.pass_time: 2,
        }
        self.dice.choices(list(actions), list(actions.values()))[0]()
        if self.dice.random() < 0.9:
            self.plan()
        check_integrity(self.core)

    def settle(self) -> None:
        """Stop the trouble, let everything end, and require that nothing is left."""
        self.has_failures = False
        for frontend in self.frontends:
            if not frontend.is_attached:
                self.attach_frontend(frontend)
        if not self.workers:
            self.attach_worker()
        for _ in range(20000):
            self.plan()
            if not any(worker.unanswered for worker in self.workers.values()):
                break
            self.run_worker()
            self.deliver_result()
            check_integrity(self.core)
        for frontend in self.frontends:
            while frontend.inbox:
                frontend.receive()
            assert not frontend.streams, f"{len(frontend.streams)} streams never ended"
        report = audit(self.core)
        assert (report.num_requests, report.num_waiting, report.num_running) == (0, 0, 0)
        for pool in report.pools:
            assert (pool.num_held, pool.num_slots, pool.num_steps_in_flight) == (0, 0, 0)
        for worker in self.workers.values():
            assert not worker.slots, "the worker was not told of freed slots"

    # Inside.

    def _reattach(self, worker: SimulatedWorker) -> None:
        self.num_workers += 1
        worker.reattach(worker_info(self.num_workers, **self.worker_changes))
        self.workers[worker.info.worker_id] = worker
        self._deliver(self.core.attach_worker(worker.info))

    def _deliver(self, events: list[Event]) -> None:
        for event in events:
            frontend = next(f for f in self.frontends if f.frontend_id == event.frontend_id)
            assert frontend.is_attached, "an event for a frontend that is away"
            frontend.inbox.append(event)

    def _some_frontend(self) -> SimulatedFrontend | None:
        attached = [frontend for frontend in self.frontends if frontend.is_attached]
        return self.dice.choice(attached) if attached else None

    def _handle(self, frontend: SimulatedFrontend) -> int:
        frontend.next_handle += 1
        return frontend.next_handle

    def _failure(self, worker: SimulatedWorker) -> StepFailure | None:
        if not self.has_failures or self.dice.random() > 0.03:
            return None
        slots = worker.queue[0].slots
        culprits = (self.dice.choice(slots),) if slots and self.dice.random() < 0.5 else ()
        return StepFailure("planted", culprits)
