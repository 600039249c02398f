"""Step plans from the scheduler and step results of the worker, as plain data.

Field names and meanings are those of worker_attach.proto. Arrays are anything that numpy reads as
integers, so a plan made in the same process needs no packing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams

U32Array = npt.NDArray[np.uint32]
Int64Array = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

Ints = Sequence[int] | U32Array
"""Integers per slot, token or block."""

Flags = Sequence[int] | npt.NDArray[np.uint8]
"""0 or 1 per slot."""

NO_FLOATS: Floats = np.zeros(0, dtype=np.float32)
NO_SLOT = 0xFFFFFFFF
"""In named_slots: a name that belongs to no slot."""

NO_INTS: U32Array = np.zeros(0, dtype=np.uint32)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A sequence that is new to the worker, in full.

    Attributes:
        slot: Its slot until the slot is freed.
        request_id: For logs and audits.
        choice: Index of the choice in the request; part of the sampling counter.
        prompt_token_ids: The prompt without its prefix.
        emitted_token_ids: Tokens emitted before; output positions count from the prompt's end.
        sampling: Complete, with a seed.
        block_tables: Block ids per cache group.
        eos_token_ids: May not be sampled before min_tokens.
        is_beam: Its samples are not part of its sequence, which grows by appended tokens.
        num_logprobs: Alternatives per token if the scheduler wants more than a client may ask
            for; None to use `sampling`.
        grammar_id: Grammar that the output follows; None for none.
        pooling: How its states become a vector; None for a sequence that samples.
        tenant: Tenant that its offloaded blocks count towards; None for the default tenant.
        prefix_slot: Slot whose prompt this prompt begins with, if `num_prefix_tokens` is not 0.
        num_prefix_tokens: Tokens to take from the prompt of `prefix_slot`.
    """

    slot: int
    request_id: bytes
    choice: int
    prompt_token_ids: Ints
    emitted_token_ids: Ints
    sampling: SamplingParams
    block_tables: Sequence[Ints]
    eos_token_ids: Ints = ()
    is_beam: bool = False
    num_logprobs: int | None = None
    grammar_id: bytes | None = None
    pooling: PoolingParams | None = None
    tenant: str | None = None
    prefix_slot: int = 0
    num_prefix_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """One step to run.

    Applied in the order released grammars, freed slots, new requests, forks, appended tokens, new
    blocks, copies, forward pass, names.
    """

    generation: int
    incarnation: int
    step_id: int
    released_grammars: Sequence[bytes] = ()
    freed_slots: Ints = ()
    new_requests: Sequence[NewRequest] = ()
    fork_slots: Ints = ()
    fork_sources: Ints = ()
    fork_choices: Ints = ()
    appended_slots: Ints = ()
    appended_token_ids: Ints = ()
    slots: Ints = ()
    starts: Ints = ()
    num_new_tokens: Ints = ()
    samples: Flags = ()
    num_new_blocks: Ints = ()
    new_block_ids: Ints = ()
    copy_slots: Ints = ()
    copy_sources: Ints = ()
    copy_destinations: Ints = ()
    named_blocks: Ints = ()
    names: Sequence[bytes] = ()
    named_slots: Ints = ()


@dataclass(frozen=True, slots=True)
class StepFailure:
    """The reason why a step failed; culprit slots are empty when unknown."""

    message: str
    culprit_slots: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLogprobs:
    """Log-probabilities of the prompt tokens that a step's states predict.

    Attributes:
        slots: Slots of the prompts, in the order of the plan.
        first_positions: Position in the prompt of the first token reported, per slot.
        counts: Tokens reported, per slot.
        logprobs, ranks: Per token, of all slots one after the other.
        num_top: Alternatives per token; empty when there are no alternatives at all.
        top_token_ids, top_logprobs: The alternatives, most likely first.
    """

    slots: Ints
    first_positions: Ints
    counts: Ints
    logprobs: Floats
    ranks: Ints
    num_top: Ints = ()
    top_token_ids: Ints = ()
    top_logprobs: Floats = field(default_factory=lambda: NO_FLOATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The outcome of one plan; arrays as in the wire message, slots in the order of the plan.

    `given_up` maps slots that will never get a mask to the reasons.
    """

    generation: int
    incarnation: int
    step_id: int
    slots: Ints = ()
    counts: Ints = ()
    token_ids: Ints = ()
    logprobs: Floats = field(default_factory=lambda: NO_FLOATS)
    ranks: Ints = ()
    num_top: Ints = ()
    top_token_ids: Ints = ()
    top_logprobs: Floats = field(default_factory=lambda: NO_FLOATS)
    prompt: PromptLogprobs | None = None
    vectors: Floats = field(default_factory=lambda: NO_FLOATS)
    failed_slots: Ints = ()
    failed_reason: str = ""
    failure: StepFailure | None = None
    model_time_us: int = 0
    step_time_us: int = 0
    given_up: Mapping[int, str] = field(default_factory=dict)


class PlanError(ValueError):
    """A plan contradicts the worker's state; names the slots at fault when they are known."""

    def __init__(self, message: str, culprit_slots: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.culprit_slots = culprit_slots
