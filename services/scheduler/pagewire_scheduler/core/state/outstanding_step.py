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
    """A slot and a table that some step still names, and the adapter used there."""

    slot: int
    table: BlockTable
    adapter: bytes = b""


@dataclass(slots=True)
class OutstandingStep:
    """A plan that was sent and not answered yet.

    Attributes:
        plan: The plan as arrays: an object per sequence and step would cost more than all uses of
            it.
        sequences: The sequences in its slots, in the order of the plan.
        named_blocks: Blocks that get a name with the step; the plan's list holds void ones, too.
        branched: Beam requests whose forks and tokens are in the plan.
        prefilled: Prefills that are complete with the step.
        due_timelines: Sequences whose timelines are reported with the result.
        traced: Sequences of traced requests, and how many tokens of their prompts it computes.
        releases: Slots and tables that come free with the answer: no later step names them.
        num_tokens: Positions to compute.
        num_pooled: Sequences to return vectors or class scores of.
        num_vector_bytes: Bytes of these.
        reports_prompt_logprobs: Whether log-probabilities of prompts are returned.
        is_void: Whether a step before failed, so that the answer means nothing.
        left_out: Sequences that nothing is computed of: the step was planned on a token that a
            step before did not sample.
    """

    plan: StepPlan
    sequences: list[Sequence] = field(default_factory=list)
    named_blocks: list[int] = field(default_factory=list)
    branched: list[Request] = field(default_factory=list)
    prefilled: list[Sequence] = field(default_factory=list)
    due_timelines: list[Sequence] = field(default_factory=list)
    traced: list[tuple[Sequence, int]] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    num_tokens: int = 0
    num_pooled: int = 0
    num_vector_bytes: int = 0
    reports_prompt_logprobs: bool = False
    is_void: bool = False
    left_out: set[Sequence] = field(default_factory=set)

    @property
    def step_id(self) -> int:
        """Id of the plan."""
        return self.plan.step_id

    @property
    def chunks(self) -> list[Chunk]:
        """The part of each sequence."""
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

    @property
    def granted(self) -> list[int]:
        """The drafts that may be verified of each sequence that is sampled for."""
        plan = self.plan
        grants = plan.num_drafts or [0] * len(plan.slots)
        return [num for num, sample in zip(grants, plan.samples, strict=True) if sample]
