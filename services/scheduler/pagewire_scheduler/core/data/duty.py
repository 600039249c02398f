"""The use of a worker: its roles, whether it drains, its sleep and its next weights."""

from dataclasses import dataclass

from pagewire_scheduler.core.data.worker_info import Role
from pagewire_shared.sleep.state import MemoryState, SleepMode, SleepOrder, WorkerSleep
from pagewire_shared.weights.version import UpdateOrder


@dataclass(slots=True)
class Duty:
    """The use of a worker; `core.routing` has modules that change it.

    Attributes:
        is_draining: Whether the worker gets no new requests.
        is_drain_due: Whether waiting sequences are to move once no trial is under way.
        sleep_order: Set when the worker is to sleep.
        sleep: The sleep of the worker; None while it is awake.
        update: Set when the worker is to load other weights, with a `sleep_order`.
        is_paused: Whether it computes nothing, because its weights are old or about to be.
    """

    roles: frozenset[Role]
    is_draining: bool = False
    is_drain_due: bool = False
    sleep_order: SleepOrder | None = None
    sleep: WorkerSleep | None = None
    update: UpdateOrder | None = None
    is_paused: bool = False

    @property
    def takes_new(self) -> bool:
        """Whether new sequences may be placed on the worker."""
        is_free = not self.is_draining and not self.is_paused
        return is_free and self.sleep_order is None and self.sleep is None

    @property
    def is_still(self) -> bool:
        """Whether the worker gets no plan at all."""
        order = self.sleep_order
        is_to_sleep = order is not None and order.mode is SleepMode.KEEP
        return self.is_paused or self.sleep is not None or is_to_sleep

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
