"""Interface between copies of blocks and the computation beside them.

A copy out of the pool reads everything computed so far; later writes to the same blocks wait for
it. Computation that is enqueued after a copy into the pool sees the copy. Methods are called in the
model thread and do not wait there, unless their docstring says so.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.kv.block_observer import BlockObserver

Work = Callable[[], object]
"""Enqueues copies on the current stream, or makes them if there are no streams."""


class CopyEvent(Protocol):
    """A point in the order of copies, like torch.cuda.Event; used from any thread."""

    def query(self) -> bool:
        """Return whether all work before it is done."""
        ...

    def synchronize(self) -> None:
        """Wait until all work before it is done. Raises RuntimeError if the device has failed."""
        ...


class DeviceCopies(Protocol):
    """Copies between the memory of blocks and the host."""

    def copy_out(self, blocks: Sequence[int], work: Work) -> CopyEvent:
        """Begin to copy out of `blocks`; the output of `work` may be read after the event.

        Raises the exceptions of `work`.
        """
        ...

    def call_after(self, event: CopyEvent, then: Callable[[], None]) -> None:
        """Call `then` once, in some thread, when the event is reached.

        It is called at once if the event is reached already, otherwise in the order of these calls.
        It is not called if the device fails before.
        """
        ...

    def load(self, work: Work) -> None:
        """Begin to copy into blocks that no step under way uses and that were begun anew.

        Steps and copies out that begin later come after it.
        """
        ...

    def wait_for_loads(self) -> None:
        """Wait until host memory that loads read may be written again.

        Waits for copies between host and device, not for steps.
        """
        ...

    def begin_step(self) -> None:
        """Order the next step behind all loads."""
        ...

    def overwrite(self, blocks: Sequence[int]) -> None:
        """Order later writes to `blocks` behind copies out of them."""
        ...

    def order_loads(self) -> None:
        """Order loads behind all steps enqueued before the next step.

        Needed when a result does not wait for the device, or is not waited for.
        """
        ...

    def pin(self, memory: Tensor) -> Callable[[], None]:
        """Let the device access host memory, uint8 [bytes], directly; from any thread.

        Returns a function that ends it. If pinning is not possible, copies wait for the device.
        """
        ...

    def close(self) -> None:
        """Wait for all copies; host memory may be freed afterwards. From any thread."""
        ...


class _Done:
    """An event that is reached already."""

    def query(self) -> bool:
        """Return True."""
        return True

    def synchronize(self) -> None:
        """Return at once."""


class ImmediateCopies:
    """DeviceCopies of a pool in host memory: done when they return."""

    def copy_out(self, blocks: Sequence[int], work: Work) -> CopyEvent:
        work()
        return _Done()

    def call_after(self, event: CopyEvent, then: Callable[[], None]) -> None:
        then()

    def load(self, work: Work) -> None:
        work()

    def wait_for_loads(self) -> None:
        """See DeviceCopies."""

    def begin_step(self) -> None:
        """See DeviceCopies."""

    def overwrite(self, blocks: Sequence[int]) -> None:
        """See DeviceCopies."""

    def order_loads(self) -> None:
        """See DeviceCopies."""

    def pin(self, memory: Tensor) -> Callable[[], None]:
        return _nothing

    def close(self) -> None:
        """See DeviceCopies."""


class CopyOrder(BlockObserver):
    """Orders the steps of a model runner among copies of its blocks.

    It is the last of the observers: another may copy out blocks that are about to be overwritten.
    """

    def __init__(self, copies: DeviceCopies) -> None:
        self._copies = copies

    def follow(self, plan: StepPlan) -> None:
        self._copies.begin_step()
        if len(plan.slots) == 0:
            # The plan may copy blocks, and its result does not wait for the copies.
            self._copies.order_loads()

    def overwrite(self, blocks: Sequence[int]) -> None:
        self._copies.overwrite(blocks)

    def failed(self) -> None:
        """See BlockObserver: the work that the failed step enqueued may still run."""
        self._copies.order_loads()

    def drop_slots(self) -> None:
        self._copies.order_loads()


def _nothing() -> None:
    pass
