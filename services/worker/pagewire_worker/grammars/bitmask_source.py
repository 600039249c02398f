"""Interface for grammars: tracks slots that have a grammar, and computes the masks of a step."""

from collections.abc import Callable, Sequence
from typing import Protocol

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.plan.plan_error import PlanError
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask


class BitmaskSource(Protocol):
    """Follows the output of slots whose requests name a grammar, and computes their masks.

    All calls come from the model thread; only those that say so raise. A failed step takes nothing
    back here: if the position of a slot is not the expected one, its state must be rebuilt from
    its tokens.
    """

    def hurry_when(self, is_hurried: Callable[[], bool]) -> None:
        """Stop waiting for late masks once `is_hurried` returns true: other work waits."""
        ...

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Drop compiled grammars that no sequence needs; the first change of a plan."""
        ...

    def free(self, slot: int) -> None:
        """Forget a slot, if it holds anything."""
        ...

    def install(self, request: NewSequence) -> None:
        """Begin to follow the slot of a new request; ignore the slot if there is no grammar.

        Called for every new request; the earlier state of the slot is lost. Raises PlanError naming
        the slot if its grammar is not here.
        """
        ...

    def fork(self, slots: Int64Array, sources: Int64Array) -> None:
        """Copy the state of `sources` [n] to `slots` [n], as if all were read before any write."""
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
            slots: The slots that sample, [rows], with or without a grammar. A slot with drafts has
                one row per draft and one more, next to each other.
            positions: Index in the output of the token that each slot will sample, [rows]. `table`
                has the drafts before it, behind the known tokens.

        Returns:
            A function to call after the forward pass. It waits for the masks, for a bounded time,
            and returns them; None if no row has one. Rows behind drafts that are not allowed have
            none. It may raise PlanError naming the slots at fault.
        """
        ...

    def accept(self, slots: Int64Array, token_ids: Int64Array) -> None:
        """Add the sampled tokens of a step, both [rows], without rows left out; a slot whose drafts
        were right has several.

        The step may still fail. Raises PlanError, unless another step was launched since.
        """
        ...


class NoBitmasks:
    """A BitmaskSource for workers without grammars: refuses requests that name one."""

    def hurry_when(self, is_hurried: Callable[[], bool]) -> None:
        """Do nothing: there are no masks to wait for."""

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Do nothing."""

    def free(self, slot: int) -> None:
        """Do nothing."""

    def install(self, request: NewSequence) -> None:
        """Refuse a grammar. Raises PlanError."""
        if request.grammar_id is not None:
            text = f"slot {request.slot}: this worker follows no grammars"
            raise PlanError(text, (request.slot,))

    def fork(self, slots: Int64Array, sources: Int64Array) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""

    def follows(self, slots: Int64Array) -> bool:
        """Return False."""
        return False

    def begin(
        self, slots: Int64Array, positions: Int64Array, table: SlotTable
    ) -> Callable[[], GrammarBitmask | None]:
        """Return a function that returns no masks."""
        return lambda: None

    def accept(self, slots: Int64Array, token_ids: Int64Array) -> None:
        """Do nothing."""
