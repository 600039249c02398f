"""Converts step plans and results to and from messages. The columns convert by themselves."""

from typing import Final

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import pack_u32, require_one_length, unpack_u32, view_u32
from pagewire_shared.sampling.beam import MAX_BEAM_CANDIDATES
from pagewire_shared.sampling.convert import (
    pooling_from_message,
    pooling_to_message,
    sampling_from_message,
    sampling_to_message,
)
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.columns import Columns
from pagewire_shared.steps.plan import GroupTable, NewSequence, StepPlan
from pagewire_shared.steps.result import ListResult, PromptLogprobs, StepFailure, StepResult

GRAMMAR_ID_BYTES: Final = 16
MAX_FAILURE_CHARACTERS: Final = 4096

_PLAN, _NEW = Columns(StepPlan), Columns(NewSequence)
_RESULT, _PROMPT = Columns(StepResult), Columns(PromptLogprobs)
_DEFAULTS = SamplingParams(max_tokens=None)


def plan_to_message(plan: StepPlan) -> wire.StepPlan:
    """Return the wire form of `plan`."""
    new = [_new_to_message(sequence) for sequence in plan.new_sequences]
    return wire.StepPlan(new_requests=new, **_PLAN.pack(plan))


def plan_from_message(message: wire.StepPlan) -> StepPlan:
    """Return the plan in `message`. Raises WireError when its arrays contradict each other."""
    new = [_new_from_message(request) for request in message.new_requests]
    plan: StepPlan = StepPlan(new_sequences=new, **_PLAN.unpack(message))
    _PLAN.check_lengths(plan)
    if len(plan.named_slots):
        require_one_length(named_blocks=plan.named_blocks, named_slots=plan.named_slots)
    if len(plan.named_stripes):
        require_one_length(named_blocks=plan.named_blocks, named_stripes=plan.named_stripes)
    if len(plan.num_drafts):
        require_one_length(slots=plan.slots, num_drafts=plan.num_drafts)
    return plan


def _new_to_message(sequence: NewSequence) -> wire.NewRequest:
    sampling = sampling_to_message(sequence.sampling)
    sampling.ClearField("structured_outputs")  # the worker has the grammar by its id
    if sequence.num_candidates is not None:
        sampling.logprobs = sequence.num_candidates
    pooling = sequence.pooling
    return wire.NewRequest(
        sampling=sampling,
        block_tables=[
            wire.BlockTable(block_ids=pack_u32(table.block_ids), num_before=table.num_before)
            for table in (GroupTable(sequence.block_ids), *sequence.further_tables)
        ],
        is_beam=sequence.is_beam,
        grammar_id=sequence.grammar_id,
        adapter_slot=sequence.adapter_slot,
        pooling=pooling_to_message(pooling) if pooling is not None else None,
        **_NEW.pack(sequence),
    )


def _new_from_message(message: wire.NewRequest) -> NewSequence:
    if not message.block_tables:
        raise WireError("block_tables: there is no table", field="block_tables")
    first, *further = (
        GroupTable(view_u32(table.block_ids), table.num_before) for table in message.block_tables
    )
    if first.num_before:
        raise WireError("block_tables: the first one lacks blocks", field="block_tables")
    grammar_id = message.grammar_id if message.HasField("grammar_id") else None
    if grammar_id is not None:
        check_grammar_id(grammar_id)
    sampling, num_candidates = message.sampling, None
    if sampling.logprobs > MAX_BEAM_CANDIDATES:
        raise WireError(
            f"logprobs: at most {MAX_BEAM_CANDIDATES} alternatives, got {sampling.logprobs}",
            field="logprobs",
        )
    if message.is_beam:
        num_candidates = sampling.logprobs
        sampling = sampling_pb2.SamplingParams()
        sampling.CopyFrom(message.sampling)
        sampling.ClearField("logprobs")
    return NewSequence(
        sampling=sampling_from_message(sampling, defaults=_DEFAULTS),
        block_ids=first.block_ids,
        further_tables=tuple(further),
        num_candidates=num_candidates,
        grammar_id=grammar_id,
        adapter_slot=message.adapter_slot if message.HasField("adapter_slot") else None,
        pooling=pooling_from_message(message.pooling) if message.HasField("pooling") else None,
        **_NEW.unpack(message),
    )


def check_grammar_id(grammar_id: bytes) -> None:
    """Raise WireError when `grammar_id` cannot be the id of a grammar."""
    if len(grammar_id) != GRAMMAR_ID_BYTES:
        raise WireError(
            f"grammar_id: {len(grammar_id)} bytes, not {GRAMMAR_ID_BYTES}", field="grammar_id"
        )


def result_to_message(result: StepResult) -> wire.StepResult:
    """Return the wire form of `result`."""
    prompt = result.prompt
    message = wire.StepResult(
        prompt=wire.PromptLogprobs(**_PROMPT.pack(prompt)) if prompt is not None else None,
        given_up_slots=pack_u32(list(result.given_up)),
        given_up_reasons=result.given_up.values(),
        **_RESULT.pack(result),
    )
    if result.failure is not None:
        message.failure.message = result.failure.message[:MAX_FAILURE_CHARACTERS]
        message.failure.culprit_slots = pack_u32(result.failure.culprit_slots)
    return message


def result_from_message(message: wire.StepResult) -> ListResult:
    """Return the result in `message`. Raises WireError on torn arrays."""
    failure = None
    if message.HasField("failure"):
        culprits = tuple(unpack_u32(message.failure.culprit_slots))
        failure = StepFailure(message.failure.message, culprits)
    return StepResult(
        prompt=_prompt_from_message(message.prompt) if message.HasField("prompt") else None,
        failure=failure,
        given_up=_given_up(message),
        **_RESULT.unpack(message),
    )


def _given_up(message: wire.StepResult) -> dict[int, str]:
    if not message.given_up_slots:
        return {}
    slots, reasons = unpack_u32(message.given_up_slots), list(message.given_up_reasons)
    require_one_length(given_up_slots=slots, given_up_reasons=reasons)
    return dict(zip(slots, reasons, strict=True))


def _prompt_from_message(message: wire.PromptLogprobs) -> PromptLogprobs[list[int], list[float]]:
    prompt: PromptLogprobs[list[int], list[float]] = PromptLogprobs(**_PROMPT.unpack(message))
    _PROMPT.check_lengths(prompt)
    num_top = prompt.num_top or [0] * len(prompt.logprobs)
    require_one_length(logprobs=prompt.logprobs, ranks=prompt.ranks, num_top=num_top)
    if not sum(num_top) == len(prompt.top_token_ids) == len(prompt.top_logprobs):
        raise WireError("alternatives of prompt tokens are announced that did not come")
    return prompt
