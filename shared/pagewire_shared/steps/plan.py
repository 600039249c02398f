"""Plans of steps: structs of arrays over slots, as the scheduler fills and the worker reads them.

Names and meanings are those of worker_attach.proto.
"""
# ruff: noqa: RUF009 - `column` makes a field, as dataclasses.field does

from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Generic

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.steps.columns import NAMES, U8, U32, Ints, IntsT, column

NO_SLOT: Final = 0xFFFFFFFF
"""In named_slots: a name that no content has."""


@dataclass(frozen=True, slots=True)
class GroupTable:
    """The block table of a sequence in one cache group.

    Attributes:
        block_ids: In order of position, behind the first `num_before` blocks.
        num_before: Blocks that no step of the sequence reads: they fell out of the window.
    """

    block_ids: Ints
    num_before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSequence:
    """A sequence that the worker does not know, in full.

    Attributes:
        slot: Its slot until the slot is freed.
        request_id: For logs and audits.
        choice: Index of the choice in the request; part of the sampling counter.
        prompt_token_ids: The prompt without its prefix.
        emitted_token_ids: Tokens emitted before; output positions count from the prompt's end.
        sampling: Complete, with a seed; its grammar is not sent.
        block_ids: Its block table in the first cache group.
        further_tables: Those in the other groups; all tables reach equally far.
        eos_token_ids: May not be sampled before min_tokens.
        num_candidates: Number of likeliest next tokens that a beam returns. They take the place of
            `sampling.logprobs`. None for a sequence that is not a beam.
        grammar_id: Grammar that the output follows; None for none.
        pooling: How its states become a vector; None for a sequence that samples.
        tenant: Tenant that its blocks in KV stores count towards; "" for the default tenant.
        prefix_slot: Slot whose prompt this prompt begins with, if `num_prefix_tokens` is not 0.
        num_prefix_tokens: Tokens to take from the prompt of `prefix_slot`.
        adapter_slot: Adapter slot whose adapter is applied to it; None for the model alone.
        draft_scope: What only sequences of one tenant and cache salt have in common; b"" if the
            tenant alone counts.
        predicted_token_ids: Tokens that the client expects the output to be; empty for none.
    """

    slot: int
    request_id: bytes
    choice: int
    prompt_token_ids: Ints = column(U32)
    emitted_token_ids: Ints = column(U32)
    sampling: SamplingParams
    block_ids: Ints
    eos_token_ids: Ints = column(U32)
    num_candidates: int | None = None
    grammar_id: bytes | None = None
    pooling: PoolingParams | None = None
    tenant: str = ""
    prefix_slot: int = 0
    num_prefix_tokens: int = 0
    adapter_slot: int | None = None
    draft_scope: bytes = b""
    predicted_token_ids: Ints = column(U32)
    further_tables: tuple[GroupTable, ...] = ()

    @property
    def is_beam(self) -> bool:
        """Whether its samples are not part of it: a beam grows by appended tokens."""
        return self.num_candidates is not None


@dataclass(frozen=True, slots=True)
class StepPlan(Generic[IntsT]):
    """One step to run.

    Applied in the order released grammars, freed slots, new sequences, forks, appended tokens, new
    blocks, copies, forward pass, names.

    Attributes:
        released_grammars: Ids of grammars that the worker may forget.
        freed_slots: Slots whose sequences have left.
        fork_slots: Slots that become copies of `fork_sources`, as choices `fork_choices`.
        appended_slots: Slots of beams that grow by `appended_token_ids`.
        slots: Scheduled slots.
        starts: First position computed.
        num_new_tokens: Positions computed; 0 for a fork, which samples from its source's logits.
        samples: 1 where a token is sampled after the last position, or a vector is returned.
        num_new_blocks: Blocks appended to each table of a known sequence.
        new_block_ids: Ids of the appended blocks, one slot after the other, and of a slot one cache
            group after the other.
        copy_slots: Slots in one of whose block tables a copy takes the place of the block copied,
            from `copy_sources` to `copy_destinations`.
        named_blocks: Blocks that get a name with this step.
        names: Their names.
        named_slots: Slots of their sequences, or NO_SLOT; empty when unknown.
        named_stripes: Stripes of the named blocks, which rank the KV stores; empty where a block
            goes to the first store.
        num_drafts: Drafts that may be verified behind the last position computed, per scheduled
            slot; empty for none at all.
    """

    generation: int
    incarnation: int
    step_id: int
    _: KW_ONLY
    released_grammars: list[bytes] = column(NAMES)
    freed_slots: IntsT = column(U32)
    new_sequences: list[NewSequence] = field(default_factory=list)
    fork_slots: IntsT = column(U32, group="forks")
    fork_sources: IntsT = column(U32, group="forks")
    fork_choices: IntsT = column(U32, group="forks")
    appended_slots: IntsT = column(U32, group="appended tokens")
    appended_token_ids: IntsT = column(U32, group="appended tokens")
    slots: IntsT = column(U32, group="slots")
    starts: IntsT = column(U32, group="slots")
    num_new_tokens: IntsT = column(U32, group="slots")
    samples: IntsT = column(U8, group="slots")
    num_new_blocks: IntsT = column(U32, group="slots")
    new_block_ids: IntsT = column(U32)
    copy_slots: IntsT = column(U32, group="copies")
    copy_sources: IntsT = column(U32, group="copies")
    copy_destinations: IntsT = column(U32, group="copies")
    named_blocks: IntsT = column(U32, group="names")
    names: list[bytes] = column(NAMES, group="names")
    named_slots: IntsT = column(U32)
    named_stripes: IntsT = column(U32)
    num_drafts: IntsT = column(U8)
