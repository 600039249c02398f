"""Records of plans that were sent and not answered, and of slots and blocks that come free with the
answers."""

from dataclasses import dataclass, field

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.state.request import Request, Sequence
from pagewire_shared.steps.plan import StepPlan


@dataclass(frozen=True, slots=True)
class Chunk:
    """The part of one sequence in one step; `end` is the position after its last one."""

    sequence: Sequence
    slot: int
    is_sampled: bool
    end: int


@dataclass(slots=True)
class Release:
    """A slot and a table that some step still names."""

    slot: int
    table: BlockTable


@dataclass(slots=True)
class OutstandingStep:
    """A plan that was sent and not answered.

    Attributes:
        plan: What was sent. Kept as arrays: an object per sequence and step would cost more than
            all that is done with it.
        sequences: Who is in its slots, in their order.
        named_blocks: Blocks that get a name with it; the plan's own list holds void ones, too.
        branched: Beam requests whose forks and tokens it tells.
        prefilled: Prefills that are complete with it.
        due_timelines: Sequences whose timelines are reported with the result.
        releases: What comes free with its answer, because it is the last step to name it.
        num_tokens: Positions it computes.
        num_pooled: Vectors it returns.
        reports_prompt_logprobs: Whether it reports log-probabilities of prompts.
        is_void: A step before it failed, so whatever it answers means nothing.
        left_out: Whom it computes nothing of: it was planned on a token that a step before it did
            not sample.
    """

    plan: StepPlan
    sequences: list[Sequence] = field(default_factory=list)
    named_blocks: list[int] = field(default_factory=list)
    branched: list[Request] = field(default_factory=list)
    prefilled: list[Sequence] = field(default_factory=list)
    due_timelines: list[Sequence] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    num_tokens: int = 0
    num_pooled: int = 0
    reports_prompt_logprobs: bool = False
    is_void: bool = False
    left_out: set[Sequence] = field(default_factory=set)

    @property
    def step_id(self) -> int:
        """Id of the plan."""
        return self.plan.step_id

    @property
    def chunks(self) -> list[Chunk]:
        """What it holds of each sequence."""
        plan = self.plan
        return [
            Chunk(sequence, slot, bool(sample), start + num_tokens)
            for sequence, slot, sample, start, num_tokens in zip(
                self.sequences,
                plan.slots,
                plan.samples,
                plan.starts,
                plan.num_new_tokens,
                strict=True,
            )
        ]

    @property
    def sampled(self) -> list[Sequence]:
        """Sequences that a token is sampled for, or a vector returned."""
        return [
            sequence
            for sequence, sample in zip(self.sequences, self.plan.samples, strict=True)
            if sample
        ]
