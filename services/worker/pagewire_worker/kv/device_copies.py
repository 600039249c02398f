"""The seam between copies of blocks and the computing beside them. Owns no stream.

Copies out of the pool read what was computed so far, and what is computed later into the same
blocks waits for them; what is computed after a copy into the pool sees it. Nothing here waits in
the model thread unless its docstring says so. All methods but what is said otherwise are called
there.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from pagewire_worker.kv.block_observer import NullObserver
from pagewire_worker.plan.step import StepPlan

Work = Callable[[], object]
"""Enqueues copies on the current stream; where there are no streams, makes them."""


class CopyEvent(Protocol):
    """A point in the order of copies, as torch.cuda.Event; from any thread."""

    def query(self) -> bool:
        """Return whether all before it is done."""
        ...

    def synchronize(self) -> None:
        """Wait until all before it is done. Raises RuntimeError where the device has failed."""
        ...


class DeviceCopies(Protocol):
    """Copies between the memory of blocks and the host."""

    def copy_out(self, blocks: Sequence[int], work: Work) -> CopyEvent:
        """Begin to copy out of `blocks`; what `work` writes may be read after the event.

        Raises whatever `work` does.
        """
        ...

    def call_after(self, event: CopyEvent, then: Callable[[], None]) -> None:
        """Call `then` once, in some thread, when the event has come: at once where it has, and
        otherwise in the order of these calls; never where the device fails before it."""
        ...

    def load(self, work: Work) -> None:
        """Begin to copy into blocks that no step under way uses and that were begun anew; steps and
        copies out that begin later come after it."""
        ...

    def wait_for_loads(self) -> None:
        """Wait until host memory that loads read may be written again; this waits for copies
        between host and device, and for no step."""
        ...

    def begin_step(self) -> None:
        """Order the step that comes behind all loads."""
        ...

    def overwrite(self, blocks: Sequence[int]) -> None:
        """Order whatever comes behind copies out of `blocks`, which it will write."""
        ...

    def order_loads(self) -> None:
        """Order loads behind the steps that are enqueued before the next one: a result does not
        wait for the device, or nobody waits for it."""
        ...

    def pin(self, memory: Tensor) -> Callable[[], None]:
        """Let the device copy to and from host memory, uint8 [bytes], by itself, and return what
        ends that; from any thread. Where that is not possible, copies wait for it."""
        ...

    def close(self) -> None:
        """Wait for all copies: host memory may be freed after that; from any thread."""
        ...


class _Done:
    """What has happened."""

    def query(self) -> bool:
        """It has."""
        return True

    def synchronize(self) -> None:
        """There is nothing to wait for."""


class ImmediateCopies:
    """Copies of a pool in the memory of the host: done when they return."""

    def copy_out(self, blocks: Sequence[int], work: Work) -> CopyEvent:
        """See DeviceCopies."""
        work()
        return _Done()

    def call_after(self, event: CopyEvent, then: Callable[[], None]) -> None:
        """See DeviceCopies."""
        then()

    def load(self, work: Work) -> None:
        """See DeviceCopies."""
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
        """See DeviceCopies."""
        return _nothing

    def close(self) -> None:
        """See DeviceCopies."""


class CopyOrder(NullObserver):
    """Orders the steps of an model runner among copies of its blocks. The last one of its watches:
    another may copy out what is about to be written over."""

    def __init__(self, copies: DeviceCopies) -> None:
        self._copies = copies

    def follow(self, plan: StepPlan) -> None:
        """See BlockWatch."""
        self._copies.begin_step()
        if len(plan.slots) == 0:
            # It may copy blocks, and its result does not wait for that.
            self._copies.order_loads()

    def overwrite(self, blocks: Sequence[int]) -> None:
        """See BlockWatch."""
        self._copies.overwrite(blocks)

    def failed(self) -> None:
        """See BlockWatch: what it enqueued may still run."""
        self._copies.order_loads()

    def drop_slots(self) -> None:
        """See BlockWatch."""
        self._copies.order_loads()


def _nothing() -> None:
    pass
