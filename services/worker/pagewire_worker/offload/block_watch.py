"""What an executor tells of the blocks it names and writes. Owns nothing."""

from collections.abc import Sequence
from typing import Protocol

from pagewire_worker.step import Ints, StepPlan


class BlockWatch(Protocol):
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

    def named(self, plan: StepPlan) -> None:
        """The named blocks of `plan` are filled, and have their names."""
        ...

    def drop_slots(self) -> None:
        """All sequences are gone; blocks keep content and names."""
        ...


class NoWatch:
    """Nobody wants to know."""

    def leave(self, slots: Ints) -> None:
        """Ignore."""

    def follow(self, plan: StepPlan) -> None:
        """Ignore."""

    def overwrite(self, blocks: Sequence[int]) -> None:
        """Ignore."""

    def named(self, plan: StepPlan) -> None:
        """Ignore."""

    def drop_slots(self) -> None:
        """Ignore."""
