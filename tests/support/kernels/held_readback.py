"""A device whose steps are over when a test says so."""

import threading

from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.runner.readback import HostCopy


class HeldEvent:
    """A point in the work of a device that comes when it is set."""

    def __init__(self) -> None:
        self._has_come = threading.Event()
        self.error: RuntimeError | None = None

    def come(self, error: RuntimeError | None = None) -> None:
        self.error = error
        self._has_come.set()

    def query(self) -> bool:
        return self._has_come.is_set()

    def synchronize(self) -> None:
        assert self._has_come.wait(20), "nobody lets the step end"
        if self.error is not None:
            raise self.error


class HeldReadback:
    """Hands out copies that hold once the test lets them; in order, or all at once.

    Attributes:
        events: One per step that sampled or computed, in order.
        is_free: Whether steps end by themselves from now on.
    """

    def __init__(self) -> None:
        self.events: list[HeldEvent] = []
        self.is_free = True
        self.has_failed = False

    def start(self, sampled: SampledTokens) -> HostCopy:
        event = HeldEvent()
        if self.is_free:
            event.come()
        self.events.append(event)
        return HostCopy(sampled, event)

    def is_lost(self) -> bool:
        return self.has_failed
