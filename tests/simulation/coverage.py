"""What a run has exercised: event kinds, moves of sequences, invariants. Counts, judges nothing."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

from pagewire_scheduler.core.data.state_machine import MOVES, State
from pagewire_scheduler.core.state.request import Sequence

LATER_STATES: dict[State, str] = {}
"""States that only a later issue makes reachable, and which."""


INVARIANTS = (
    "blocks_add_up",
    "counts_match_holders",
    "one_writer",
    "no_reissue_under_a_step",
    "names_say_content",
    "tables_cover",
    "step_within_bounds",
    "one_end_each",
    "cancel_frees",
    "order_of_service",
    "bounded_preemption",
    "bounded_losses",
    "progress",
    "positions_contiguous",
    "tenants_share",
    "tenants_charged",
    "same_again",
    "tokens_of_the_model",
    "prompts_are_scored",
    "vectors_of_the_model",
    "plans_are_possible",
    "foreign_results_change_nothing",
    "messages_fit",
    "messages_within_credit",
    "drafts_are_known",
    "loads_are_alone",
    "loads_end",
    "handoffs_end",
    "sleepers_hold_nothing",
    "cached_tokens_add_up",
    "books_agree",
    "everything_ends",
    "everything_is_free",
)
"""The names of all invariants, the numbered ones of the design first."""


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


@dataclass
class Coverage:
    """Counts of one or many worlds."""

    events: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    invariants: Counter[str] = field(default_factory=Counter)
    facts: Counter[str] = field(default_factory=Counter)
    peaks: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Coverage") -> None:
        self.events += other.events
        self.moves += other.moves
        self.invariants += other.invariants
        self.facts += other.facts
        self.peaks |= other.peaks

    def require(self, invariant: str, is_right: bool, detail: str) -> None:
        """Raise Violation unless it holds."""
        if not is_right:
            raise Violation(invariant, detail)


def move_name(source: State, target: State) -> str:
    return f"{source.value} -> {target.value}"


def reachable_moves() -> list[str]:
    """Every legal move that this version can make."""
    return [
        move_name(source, target)
        for source, targets in MOVES.items()
        for target in sorted(targets, key=lambda state: state.value)
        if source not in LATER_STATES and target not in LATER_STATES
    ]


def later_moves() -> list[str]:
    return [
        f"{move_name(source, target)} ({LATER_STATES.get(source) or LATER_STATES[target]})"
        for source, targets in MOVES.items()
        for target in sorted(targets, key=lambda state: state.value)
        if source in LATER_STATES or target in LATER_STATES
    ]


@contextmanager
def counted_moves(coverage: Coverage) -> Iterator[None]:
    """Count the moves of all sequences, and check them against the table."""
    original = Sequence.advance

    def advance(self: Sequence, target: State) -> None:
        coverage.moves[move_name(self.state, target)] += 1
        original(self, target)

    with mock.patch.object(Sequence, "advance", advance):
        yield
