"""The workers whose next plan may differ, and the workers that time alone may change."""

from collections.abc import Mapping

from pagewire_scheduler.core.state.worker import WorkerState


class DueWorkers:
    """Workers to plan for. Its members are dictionaries, for their order.

    Attributes:
        touched: Workers to plan for: something about them has changed.
        timed: Workers whose loads or hand-offs have deadlines.
    """

    def __init__(self, workers: Mapping[bytes, WorkerState]) -> None:
        """Args: `workers` are the attached ones, by id; the caller adds and removes them."""
        self._workers = workers
        self.touched: dict[WorkerState, None] = {}
        self._stuck: dict[WorkerState, None] = {}
        self.timed: dict[WorkerState, None] = {}

    def take(self) -> list[bytes]:
        """Return the ids of the touched workers that are attached, which are touched no more."""
        touched = list(self.touched)
        self.touched.clear()
        return [one.info.worker_id for one in touched if self.is_attached(one)]

    def forget(self, worker: WorkerState) -> None:
        """Drop a worker that was detached."""
        for members in (self.touched, self._stuck, self.timed):
            members.pop(worker, None)

    def retry_stuck(self) -> None:
        """Touch the workers that have something to start and could not: time may help."""
        self.touched.update(self._stuck)
        self._stuck.clear()

    def note_planned(self, worker: WorkerState) -> None:
        """Note what time may change of a worker that has no further plan now."""
        is_leaving = worker.duty.is_draining and worker.num_sequences > 0
        is_waiting = len(worker.waiting) > 0 or is_leaving
        for members, is_one in (
            (self._stuck, is_waiting and not worker.outstanding),
            (self.timed, bool(worker.handoffs.incoming or worker.loads.under_way)),
        ):
            if is_one:
                members[worker] = None
            else:
                members.pop(worker, None)

    def with_deadlines(self) -> list[WorkerState]:
        """Return the attached workers whose loads or hand-offs may be overdue."""
        return [one for one in {**self.timed, **self.touched} if self.is_attached(one)]

    def is_attached(self, worker: WorkerState) -> bool:
        """Whether this attach of the worker is the current one."""
        return self._workers.get(worker.info.worker_id) is worker
