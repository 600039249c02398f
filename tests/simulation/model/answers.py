"""What a worker without a model knows of a sequence, and how it answers a plan."""

from dataclasses import dataclass, field, replace

from simulation.model.naive import Cell

from pagewire_shared.steps.plan import NewSequence
from pagewire_shared.steps.result import StepResult

ABSENT = -1
"""In a block table: a block that no step reads."""


@dataclass(slots=True)
class Slot:
    """A sequence as the worker knows it; `pooled` are the contexts that a mean is made of."""

    new: NewSequence
    choice: int
    tokens: list[int]
    tables: list[list[int]]
    num_computed: int
    root: Cell
    pooled: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """A result, what was wrong with its plan (None where nothing was), and the names it gave, each
    with the last cell of its block."""

    result: StepResult
    problem: str | None = None
    named: list[tuple[bytes, Cell]] = field(default_factory=list)


def tables_of(new: NewSequence) -> list[list[int]]:
    """The block table of each cache group, with ABSENT in front where there is nothing."""
    further = [[*[ABSENT] * one.num_before, *one.block_ids] for one in new.further_tables]
    return [list(new.block_ids), *further]


def swap_copied(tables: list[list[int]], source: int, destination: int) -> bool:
    """Put the destination of a copy in the place of its source; False where there is none.

    Blocks before a window may be anyone's by now, so the last place counts.
    """
    last = {len(one) - 1 - one[::-1].index(source): one for one in tables if source in one}
    if last:
        last[max(last)][max(last)] = destination
    return bool(last)


class PlanProblem(Exception):
    """A plan contradicts what the worker holds."""


def in_full(new: NewSequence, slots: dict[int, Slot]) -> NewSequence:
    """Return `new` with all of its prompt; raises PlanProblem for a prefix that is not there."""
    length = new.num_prefix_tokens
    if not length:
        return new
    source = slots.get(new.prefix_slot)
    if source is None or length > len(source.new.prompt_token_ids):
        raise PlanProblem(f"slot {new.prefix_slot} has no prefix of {length} tokens")
    prompt = (*source.new.prompt_token_ids[:length], *new.prompt_token_ids)
    return replace(new, prompt_token_ids=prompt, num_prefix_tokens=0)


class Killed(Exception):
    """The process ends in the middle of a step."""
