"""The seam to grammars: which slots follow one, and who computes the masks of a step."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.plan.step import Int64Array, NewRequest, PlanError
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask


class BitmaskSource(Protocol):
    """Follows the output of slots whose requests name a grammar, and computes their masks.

    All calls come from the model thread; only those that say so raise. When a step fails nothing
    is taken back here: what is held for a slot must be rebuilt from its tokens where its position
    is not the one expected.
    """

    def hurry_when(self, is_hurried: Callable[[], bool]) -> None:
        """Wait for nothing that is late any longer once `is_hurried`: there is other work."""
        ...

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Drop compiled grammars that no sequence needs any more; the first change of a plan."""
        ...

    def free(self, slot: int) -> None:
        """Forget a slot, which may hold nothing."""
        ...

    def install(self, request: NewRequest) -> None:
        """Begin to follow the slot of a new request, or to ignore it where it names no grammar.

        Called for every new request; what the slot held before is gone. Raises PlanError naming
        the slot when its grammar is not here.
        """
        ...

    def fork(self, slots: Int64Array, sources: Int64Array) -> None:
        """Make `slots` [n] follow what `sources` [n] do; all sources are read before any slot is
        written."""
        ...

    def clear(self) -> None:
        """Forget all slots."""
        ...

    def follows(self, slots: Int64Array) -> bool:
        """Return whether any of `slots` [n] has a grammar."""
        ...

    def begin(
        self, slots: Int64Array, positions: Int64Array, table: SlotTable
    ) -> Callable[[], GrammarBitmask | None]:
        """Start to compute the masks of a step on the host.

        Args:
            slots: The slots that sample, [rows], with or without a grammar.
            positions: Index in the output of the token that each is about to sample, [rows].
            table: Holds the tokens of the slots.

        Returns:
            A function that is called after the forward pass, waits for the masks, though not for
            long, and returns them; None when no row has one. It may raise PlanError naming the
            slots at fault.
        """
        ...

    def accept(self, slots: Int64Array, token_ids: Int64Array) -> None:
        """Take what a step sampled, both [rows], those left out excepted; the step may still fail.
        Raises PlanError, where no other step was launched since."""
        ...


class NoBitmasks:
    """A MaskSource for workers without grammars: refuses requests that name one."""

    def hurry_when(self, is_hurried: Callable[[], bool]) -> None:
        """Nothing is waited for."""

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Nothing is held."""

    def free(self, slot: int) -> None:
        """Nothing is held."""

    def install(self, request: NewRequest) -> None:
        """Refuse a grammar. Raises PlanError."""
        if request.grammar_id is not None:
            text = f"slot {request.slot}: this worker follows no grammars"
            raise PlanError(text, (request.slot,))

    def fork(self, slots: Int64Array, sources: Int64Array) -> None:
        """Nothing is held."""

    def clear(self) -> None:
        """Nothing is held."""

    def follows(self, slots: Int64Array) -> bool:
        """Return that none has one."""
        return False

    def begin(
        self, slots: Int64Array, positions: Int64Array, table: SlotTable
    ) -> Callable[[], GrammarBitmask | None]:
        """Return a function that returns no masks."""
        return lambda: None

    def accept(self, slots: Int64Array, token_ids: Int64Array) -> None:
        """Nothing is held."""
