"""Queue of masks for a slow thread: tenants take turns, and the cheapest request comes first."""

from weakref import WeakKeyDictionary

from pagewire_worker.grammars.mask_credit import Credit
from pagewire_worker.grammars.mask_jobs import MaskJob


class TenantTurns:
    """Jobs of one thread; callers hold a lock."""

    def __init__(self) -> None:
        self._jobs: list[MaskJob] = []
        self._turns: WeakKeyDictionary[Credit, int] = WeakKeyDictionary()
        self._num_turns = 0

    def push(self, job: MaskJob) -> None:
        """Add a job."""
        self._jobs.append(job)

    def pop(self) -> MaskJob | None:
        """Return the next job that is still wanted, or None."""
        self._jobs = [job for job in self._jobs if not job.is_dropped]
        if not self._jobs:
            return None
        job = min(self._jobs, key=self._place)
        self._jobs.remove(job)
        self._num_turns += 1
        self._turns[job.bill.credit] = self._num_turns
        return job

    def _place(self, job: MaskJob) -> tuple[int, float]:
        return self._turns.get(job.bill.credit, 0), job.bill.seconds
