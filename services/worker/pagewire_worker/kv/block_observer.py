"""Interface for observers of the blocks that a model runner names and writes."""

from collections.abc import Sequence
from typing import Protocol

from pagewire_shared.steps.columns import Ints
from pagewire_shared.steps.plan import StepPlan


class BlockObserver(Protocol):
    """Called in the model thread; never raises, and never waits."""

    def leave(self, slots: Ints) -> None:
        """Sequences have left their slots."""
        ...

    def follow(self, plan: StepPlan) -> None:
        """New requests and forks of `plan` are in their slots."""
        ...

    def overwrite(self, blocks: Sequence[int]) -> None:
        """The content of `blocks` is about to be overwritten."""
        ...

    def begin(self, plan: StepPlan) -> None:
        """The forward pass of `plan` is next; if it succeeds, its named blocks get their names.

        Not called for a step that gives no names.
        """
        ...

    def launched(self, plan: StepPlan) -> None:
        """The forward pass of `plan` is enqueued.

        Its result decides later whether its blocks get their names.
        """
        ...

    def named(self, plan: StepPlan) -> None:
        """The named blocks of `plan` are filled and have their names.

        Blocks of sequences that failed alone are left out.
        """
        ...

    def failed(self) -> None:
        """A step has failed: the blocks that it wrote are void."""
        ...

    def drop_slots(self) -> None:
        """All sequences are gone; blocks keep content and names."""
        ...


class NullObserver:
    """Ignores all calls."""

    def leave(self, slots: Ints) -> None:
        """Ignore."""

    def follow(self, plan: StepPlan) -> None:
        """Ignore."""

    def overwrite(self, blocks: Sequence[int]) -> None:
        """Ignore."""

    def begin(self, plan: StepPlan) -> None:
        """Ignore."""

    def launched(self, plan: StepPlan) -> None:
        """Ignore."""

    def named(self, plan: StepPlan) -> None:
        """Ignore."""

    def failed(self) -> None:
        """Ignore."""

    def drop_slots(self) -> None:
        """Ignore."""


class BlockObservers:
    """Calls several observers, in order."""

    def __init__(self, *observers: BlockObserver) -> None:
        self._observers = observers

    def leave(self, slots: Ints) -> None:
        """See BlockObserver."""
        for observer in self._observers:
            observer.leave(slots)

    def follow(self, plan: StepPlan) -> None:
        """See BlockObserver."""
        for observer in self._observers:
            observer.follow(plan)

    def overwrite(self, blocks: Sequence[int]) -> None:
        """See BlockObserver."""
        for observer in self._observers:
            observer.overwrite(blocks)

    def begin(self, plan: StepPlan) -> None:
        """See BlockObserver."""
        for observer in self._observers:
            observer.begin(plan)

    def launched(self, plan: StepPlan) -> None:
        """See BlockObserver."""
        for observer in self._observers:
            observer.launched(plan)

    def named(self, plan: StepPlan) -> None:
        """See BlockObserver."""
        for observer in self._observers:
            observer.named(plan)

    def failed(self) -> None:
        """See BlockObserver."""
        for observer in self._observers:
            observer.failed()

    def drop_slots(self) -> None:
        """See BlockObserver."""
        for observer in self._observers:
            observer.drop_slots()
