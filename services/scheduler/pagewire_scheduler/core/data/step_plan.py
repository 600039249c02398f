"""Plans and results of steps: structs of arrays over slots, as on the wire."""

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import Final

from pagewire_shared.identity.ids import BlockName, RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams

NO_SLOT: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSequence:
    """A sequence that the worker does not know, in full.

    `num_candidates` is the number of likeliest next tokens that a beam returns; else 0.
    `grammar_id` names the grammar of its output, which is not sent with `sampling`. With `pooling`
    a vector is returned and nothing is sampled. Its blocks in KV stores count towards `tenant`.
    The first `num_prefix_tokens` of the prompt are those of the prompt in `prefix_slot`;
    `prompt_token_ids` are the others.
    """

    slot: int
    request_id: RequestId
    choice: int
    prompt_token_ids: Sequence[int]
    emitted_token_ids: Sequence[int]
    sampling: SamplingParams
    block_ids: tuple[int, ...]
    eos_token_ids: tuple[int, ...]
    num_candidates: int = 0
    grammar_id: bytes | None = None
    pooling: PoolingParams | None = None
    tenant: str = ""
    prefix_slot: int = 0
    num_prefix_tokens: int = 0


@dataclass(slots=True)
class StepPlan:
    """One step. Lists from `slots` to `num_new_blocks` have one entry per scheduled slot.

    Attributes:
        freed_slots: Slots whose sequences have left; applied before everything else.
        fork_slots: Slots that become copies of `fork_sources`, as choices `fork_choices`.
        appended_slots: Slots of beams that grow by `appended_token_ids`.
        copy_slots: Slots in whose block table a copy takes the place of the block copied, from
            `copy_sources` to `copy_destinations`.
        starts: First position computed.
        num_new_tokens: Positions computed; 0 for a fork, which samples from its source's logits.
        samples: 1 where a token is sampled after the last position, or a vector is returned.
        num_new_blocks: Blocks appended to the table of a known sequence.
        new_block_ids: Ids of the appended blocks, one slot after the other.
        named_blocks: Blocks that get a name with this step.
        names: Their names.
        named_slots: Slots of their sequences; NO_SLOT for names that no content has.
        released_grammars: Ids of grammars that the worker may forget.
    """

    generation: int
    incarnation: int
    step_id: int
    freed_slots: list[int] = field(default_factory=list)
    new_sequences: list[NewSequence] = field(default_factory=list)
    fork_slots: list[int] = field(default_factory=list)
    fork_sources: list[int] = field(default_factory=list)
    fork_choices: list[int] = field(default_factory=list)
    appended_slots: list[int] = field(default_factory=list)
    appended_token_ids: list[int] = field(default_factory=list)
    copy_slots: list[int] = field(default_factory=list)
    copy_sources: list[int] = field(default_factory=list)
    copy_destinations: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    num_new_tokens: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    num_new_blocks: list[int] = field(default_factory=list)
    new_block_ids: list[int] = field(default_factory=list)
    named_blocks: list[int] = field(default_factory=list)
    names: list[BlockName] = field(default_factory=list)
    named_slots: list[int] = field(default_factory=list)
    released_grammars: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StepFailure:
    """Why a step failed; `culprit_slots` is empty when unknown."""

    message: str
    culprit_slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of prompt tokens: a struct of arrays over slots, as on the wire.

    Attributes:
        slots, first_positions, counts: Slot, first prompt position and number of tokens.
        logprobs, ranks, num_top: One per token; `num_top` is empty when there are no alternatives.
    """

    slots: list[int] = field(default_factory=list)
    first_positions: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    num_top: list[int] = field(default_factory=list)
    top_token_ids: list[int] = field(default_factory=list)
    top_logprobs: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StepResult:
    """A worker's answer to one plan.

    Attributes:
        slots: Slots that sampled or pooled.
        counts: Tokens per such slot; 0 for one that pooled or was left out.
        token_ids: The tokens, one after the other.
        logprobs, ranks: One per token, or empty when no slot asked.
        num_top: Alternatives per token, or empty when no token has any.
        prompt: Of slots that report log-probabilities of their prompts; None when none does.
        vectors: Of the slots that pooled, one after the other, as little-endian f32.
        model_time_us: From the start of the forward pass to the sampled ids; 0 when unknown.
        given_up: Slots left out whose sequences cannot go on, and why.
        failed_slots: Slots of the plan whose sequences are broken; the rest of the result holds.
        failed_reason: Why they are broken.
    """

    generation: int
    incarnation: int
    step_id: int
    slots: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    num_top: list[int] = field(default_factory=list)
    top_token_ids: MutableSequence[int] = field(default_factory=list)
    top_logprobs: MutableSequence[float] = field(default_factory=list)
    prompt: PromptLogprobs | None = None
    vectors: bytes = b""
    model_time_us: int = 0
    failed_slots: list[int] = field(default_factory=list)
    failed_reason: str = ""
    failure: StepFailure | None = None
    given_up: dict[int, str] = field(default_factory=dict)
