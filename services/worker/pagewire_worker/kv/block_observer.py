"""What an model runner tells of the blocks it names and writes. Owns nothing."""

from collections.abc import Sequence
from typing import Protocol

from pagewire_worker.plan.step import Ints, StepPlan


class BlockObserver(Protocol):
    """Called in the model thread; never raises, and never waits."""

    def leave(self, slots: Ints) -> None:
        """Sequences have left their slots."""
        ...

    def follow(self, plan: StepPlan) -> None:
        """New requests and forks of `plan` are in their slots."""
        ...

    def overwrite(self, blocks: Sequence[int]) -> None:
        """What is in `blocks` is about to be written over."""
        ...

    def begin(self, plan: StepPlan) -> None:
        """The forward pass of `plan` is next; its named blocks have their names if it succeeds.

        Not called for a step that gives no names in any case.
        """
        ...

    def launched(self, plan: StepPlan) -> None:
        """The forward pass of `plan` is enqueued; whether its blocks get their names is known once
        it is over."""
        ...

    def named(self, plan: StepPlan) -> None:
        """The named blocks of `plan` are filled, and have their names; those of sequences that
        failed alone are left out of it."""
        ...

    def failed(self) -> None:
        """A step has failed: what it wrote is void."""
        ...

    def drop_slots(self) -> None:
        """All sequences are gone; blocks keep content and names."""
        ...


class NullObserver:
    """Nobody wants to know."""

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
    """Tells several, in order."""

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
