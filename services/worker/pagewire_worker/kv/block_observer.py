"""Base of the observers of the blocks that a model runner names and writes."""

from collections.abc import Sequence

from pagewire_shared.steps.columns import Ints
from pagewire_shared.steps.plan import StepPlan


class BlockObserver:
    """Called in the model thread; never raises, and never waits. This base does nothing."""

    def leave(self, slots: Ints) -> None:
        """Sequences have left their slots."""

    def follow(self, plan: StepPlan) -> None:
        """New requests and forks of `plan` are in their slots."""

    def overwrite(self, blocks: Sequence[int]) -> None:
        """The content of `blocks` is about to be overwritten."""

    def begin(self, plan: StepPlan) -> None:
        """The forward pass of `plan` is next; if it succeeds, its named blocks get their names.

        Not called for a step that gives no names.
        """

    def launched(self, plan: StepPlan) -> None:
        """The forward pass of `plan` is enqueued.

        Its result decides later whether its blocks get their names.
        """

    def named(self, plan: StepPlan) -> None:
        """The named blocks of `plan` are filled and have their names.

        Blocks of sequences that failed alone are left out.
        """

    def failed(self) -> None:
        """A step has failed: the blocks that it wrote are void."""

    def drop_slots(self) -> None:
        """All sequences are gone; blocks keep content and names."""


class BlockObservers(BlockObserver):
    """Calls several observers, in order."""

    def __init__(self, *observers: BlockObserver) -> None:
        self._observers = observers

    def leave(self, slots: Ints) -> None:
        for observer in self._observers:
            observer.leave(slots)

    def follow(self, plan: StepPlan) -> None:
        for observer in self._observers:
            observer.follow(plan)

    def overwrite(self, blocks: Sequence[int]) -> None:
        for observer in self._observers:
            observer.overwrite(blocks)

    def begin(self, plan: StepPlan) -> None:
        for observer in self._observers:
            observer.begin(plan)

    def launched(self, plan: StepPlan) -> None:
        for observer in self._observers:
            observer.launched(plan)

    def named(self, plan: StepPlan) -> None:
        for observer in self._observers:
            observer.named(plan)

    def failed(self) -> None:
        for observer in self._observers:
            observer.failed()

    def drop_slots(self) -> None:
        for observer in self._observers:
            observer.drop_slots()
