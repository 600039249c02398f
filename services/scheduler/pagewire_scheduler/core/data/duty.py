"""The use of a worker: its roles, whether it drains, and its sleep."""

from dataclasses import dataclass

from pagewire_scheduler.core.data.worker_info import Role
from pagewire_shared.sleep.state import MemoryState, SleepMode, SleepOrder, WorkerSleep


@dataclass(slots=True)
class Duty:
    """The use of a worker; `core.routing.draining` and `core.routing.sleeping` change it.

    Attributes:
        is_draining: Whether the worker gets no new requests.
        is_drain_due: Whether waiting sequences are to move once no trial is under way.
        sleep_order: Set when the worker is to sleep.
        sleep: The sleep of the worker; None while it is awake.
    """

    roles: frozenset[Role]
    is_draining: bool = False
    is_drain_due: bool = False
    sleep_order: SleepOrder | None = None
    sleep: WorkerSleep | None = None

    @property
    def takes_new(self) -> bool:
        """Whether new sequences may be placed on the worker."""
        return not self.is_draining and self.sleep_order is None and self.sleep is None

    @property
    def is_still(self) -> bool:
        """Whether the worker gets no plan at all."""
        order = self.sleep_order
        return self.sleep is not None or (order is not None and order.mode is SleepMode.KEEP)

    @property
    def is_about_to_return(self) -> bool:
        """Whether the worker ends its attach to attach again, asleep or awake."""
        is_waking = self.sleep is not None and self.sleep.state is MemoryState.WAKING
        return self.sleep_order is not None or is_waking

    @property
    def reported_sleep(self) -> WorkerSleep | None:
        """The sleep as operators see it; None for a worker that is awake and stays so."""
        if self.sleep is None and self.sleep_order is not None:
            return WorkerSleep(state=MemoryState.DRAINING, level=self.sleep_order.level)
        return self.sleep
