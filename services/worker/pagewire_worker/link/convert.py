"""Converts between wire messages of the worker and its plain data."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

import numpy as np

from pagewire_protos.common.v1 import audit_pb2, sampling_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.convert import finding, protocol_range
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import pack_f32, pack_u32, require_one_length, unpack_names, view_u32
from pagewire_shared.kv.transport_convert import transport_to_message
from pagewire_shared.sampling.beam import MAX_BEAM_CANDIDATES
from pagewire_shared.sampling.convert import pooling_from_message, sampling_from_message
from pagewire_shared.sampling.params import MAX_LOGPROBS, SamplingParams
from pagewire_worker.grammars.link import check_grammar_id
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.offload.layout_convert import layout_to_message
from pagewire_worker.plan.roles import WorkerRole
from pagewire_worker.plan.step import NewRequest, PromptLogprobs, StepPlan, StepResult
from pagewire_worker.runner.audit import SlotAudit

_TO_WIRE = {
    WorkerRole.PREFILL: wire.WORKER_ROLE_PREFILL,
    WorkerRole.DECODE: wire.WORKER_ROLE_DECODE,
}
_FROM_WIRE: dict[int, WorkerRole] = {number: role for role, number in _TO_WIRE.items()}


def roles_to_message(roles: Iterable[WorkerRole]) -> "list[wire.WorkerRole]":
    """Return the wire form of `roles`."""
    return [_TO_WIRE[role] for role in roles]


def roles_from_message(message: wire.SetWorkerRoles) -> tuple[WorkerRole, ...]:
    """Return the roles in `message`. Raises WireError for an empty list or an unknown role."""
    unknown = [number for number in message.roles if number not in _FROM_WIRE]
    if unknown or not message.roles:
        raise WireError(f"roles: {unknown or 'none at all'}", field="roles")
    return tuple(_FROM_WIRE[number] for number in dict.fromkeys(message.roles))


MAX_HELD_BLOCKS: Final = 262144
"""Blocks reported at an attach, of 20 bytes each: less than a message holds."""
MAX_FINDINGS: Final = 1000
MAX_FAILURE_CHARACTERS: Final = 4096

_DEFAULTS = SamplingParams(max_tokens=None)


def plan_from_message(message: wire.StepPlan) -> StepPlan:
    """Return the plan in `message`. Raises WireError when its arrays contradict each other."""
    samples = np.frombuffer(message.samples, dtype=np.uint8)
    plan = StepPlan(
        generation=message.generation,
        incarnation=message.incarnation,
        step_id=message.step_id,
        released_grammars=unpack_names(message.released_grammars),
        freed_slots=view_u32(message.freed_slots),
        new_requests=[_new_request_from_message(request) for request in message.new_requests],
        slots=view_u32(message.slots),
        starts=view_u32(message.starts),
        num_new_tokens=view_u32(message.num_new_tokens),
        samples=samples,
        num_new_blocks=view_u32(message.num_new_blocks),
        new_block_ids=view_u32(message.new_block_ids),
        fork_slots=view_u32(message.fork_slots),
        fork_sources=view_u32(message.fork_sources),
        fork_choices=view_u32(message.fork_choices),
        appended_slots=view_u32(message.appended_slots),
        appended_token_ids=view_u32(message.appended_token_ids),
        copy_slots=view_u32(message.copy_slots),
        copy_sources=view_u32(message.copy_sources),
        copy_destinations=view_u32(message.copy_destinations),
        named_blocks=view_u32(message.named_blocks),
        names=unpack_names(message.names),
        named_slots=view_u32(message.named_slots),
    )
    _check_lengths(plan, samples.tolist())
    return plan


def _check_lengths(plan: StepPlan, samples: list[int]) -> None:
    require_one_length(
        slots=plan.slots,
        starts=plan.starts,
        num_new_tokens=plan.num_new_tokens,
        samples=samples,
        num_new_blocks=plan.num_new_blocks,
    )
    require_one_length(
        fork_slots=plan.fork_slots,
        fork_sources=plan.fork_sources,
        fork_choices=plan.fork_choices,
    )
    require_one_length(
        appended_slots=plan.appended_slots, appended_token_ids=plan.appended_token_ids
    )
    require_one_length(
        copy_slots=plan.copy_slots,
        copy_sources=plan.copy_sources,
        copy_destinations=plan.copy_destinations,
    )
    require_one_length(named_blocks=plan.named_blocks, names=plan.names)
    if len(plan.named_slots):
        require_one_length(named_blocks=plan.named_blocks, named_slots=plan.named_slots)


def _new_request_from_message(message: wire.NewRequest) -> NewRequest:
    if len(message.block_tables) != 1:
        raise WireError(
            f"block_tables: this worker has 1 cache group, got {len(message.block_tables)} tables",
            field="block_tables",
        )
    grammar_id = message.grammar_id if message.HasField("grammar_id") else None
    if grammar_id is not None:
        check_grammar_id(grammar_id)
    pooling = pooling_from_message(message.pooling) if message.HasField("pooling") else None
    sampling, num_logprobs = _sampling_from_message(message.sampling)
    return NewRequest(
        slot=message.slot,
        request_id=message.request_id,
        choice=message.choice,
        prompt_token_ids=view_u32(message.prompt_token_ids),
        emitted_token_ids=view_u32(message.emitted_token_ids),
        sampling=sampling,
        block_tables=[view_u32(table.block_ids) for table in message.block_tables],
        eos_token_ids=view_u32(message.eos_token_ids),
        is_beam=message.is_beam,
        num_logprobs=num_logprobs,
        grammar_id=grammar_id,
        pooling=pooling,
        tenant=message.tenant if message.HasField("tenant") else None,
        prefix_slot=message.prefix_slot,
        num_prefix_tokens=message.num_prefix_tokens,
    )


def _sampling_from_message(
    message: sampling_pb2.SamplingParams,
) -> tuple[SamplingParams, int | None]:
    """Return the parameters, and separately alternatives beyond MAX_LOGPROBS for a scheduler."""
    if message.logprobs <= MAX_LOGPROBS:
        return sampling_from_message(message, defaults=_DEFAULTS), None
    if message.logprobs > MAX_BEAM_CANDIDATES:
        raise WireError(
            f"logprobs: at most {MAX_BEAM_CANDIDATES} alternatives, got {message.logprobs}",
            field="logprobs",
        )
    rest = sampling_pb2.SamplingParams()
    rest.CopyFrom(message)
    rest.ClearField("logprobs")
    return sampling_from_message(rest, defaults=_DEFAULTS), message.logprobs


def result_to_message(result: StepResult) -> wire.StepResult:
    """Return the wire form of `result`."""
    message = wire.StepResult(
        generation=result.generation,
        incarnation=result.incarnation,
        step_id=result.step_id,
        slots=pack_u32(result.slots),
        counts=pack_u32(result.counts),
        token_ids=pack_u32(result.token_ids),
        logprobs=pack_f32(result.logprobs),
        ranks=pack_u32(result.ranks),
        num_top=pack_u32(result.num_top),
        top_token_ids=pack_u32(result.top_token_ids),
        top_logprobs=pack_f32(result.top_logprobs),
        prompt=None if result.prompt is None else _prompt_to_message(result.prompt),
        vectors=pack_f32(result.vectors),
        failed_slots=pack_u32(result.failed_slots),
        failed_reason=result.failed_reason,
        model_time_us=result.model_time_us,
        step_time_us=result.step_time_us,
        given_up_slots=pack_u32(list(result.given_up)),
        given_up_reasons=result.given_up.values(),
    )
    if result.failure is not None:
        message.failure.message = result.failure.message[:MAX_FAILURE_CHARACTERS]
        message.failure.culprit_slots = pack_u32(result.failure.culprit_slots)
    return message


def _prompt_to_message(prompt: PromptLogprobs) -> wire.PromptLogprobs:
    return wire.PromptLogprobs(
        slots=pack_u32(prompt.slots),
        first_positions=pack_u32(prompt.first_positions),
        counts=pack_u32(prompt.counts),
        logprobs=pack_f32(prompt.logprobs),
        ranks=pack_u32(prompt.ranks),
        num_top=pack_u32(prompt.num_top),
        top_token_ids=pack_u32(prompt.top_token_ids),
        top_logprobs=pack_f32(prompt.top_logprobs),
    )


def hello_to_message(
    info: ReplicaInfo,
    *,
    incarnation: int,
    highest_generation: int,
    held: dict[int, bytes],
    cell: str = "",
) -> wire.WorkerHello:
    """Return the first message of an attach.

    The generation is one of `cell`. `held` maps block ids to names, the oldest first. If they do
    not fit, the oldest are left out: they are cache, and the newest are more likely to be wanted.
    """
    held = dict(islice(held.items(), max(0, len(held) - MAX_HELD_BLOCKS), None))
    capacity = wire.WorkerCapacity(
        num_blocks=info.num_blocks,
        max_num_seqs=info.max_num_seqs,
        max_num_batched_tokens=info.max_num_batched_tokens,
        shared_step_tokens=info.shared_step_tokens,
        max_model_len=info.max_model_len,
        steps_in_flight=info.steps_in_flight,
        vocab_size=info.vocab_size,
        embedding_size=info.embedding_size,
    )
    return wire.WorkerHello(
        protocol=protocol_range(),
        worker_id=info.worker_id,
        incarnation=incarnation,
        highest_generation=highest_generation,
        model=info.served_model_name,
        tokenizer_fingerprint=info.tokenizer_fingerprint,
        layout=layout_to_message(info.layout),
        capacity=capacity,
        roles=roles_to_message(info.roles),
        kv_endpoints=info.kv_endpoints,
        held_names=b"".join(held.values()),
        held_blocks=pack_u32(held.keys()),
        loads_blocks=info.loads_blocks,
        kv_transports=map(transport_to_message, info.kv_transports),
        pull_transports=map(transport_to_message, info.pull_transports),
        host_id=info.host_id,
        takes_prefixes=True,
        cell=cell,
    )


def audit_to_message(
    audit: SlotAudit, *, query_id: int, worker: str, num_steps_queued: int
) -> wire.WorkerAuditReply:
    """Return the answer to an audit query, with at most MAX_FINDINGS findings."""
    findings = list(audit.findings[:MAX_FINDINGS])
    if len(audit.findings) > MAX_FINDINGS:
        findings.append(("more_findings", f"{len(audit.findings) - MAX_FINDINGS} more"))
    return wire.WorkerAuditReply(
        query_id=query_id,
        audit=audit_pb2.WorkerAudit(
            worker=worker,
            num_slots=len(audit.slots),
            num_blocks_in_tables=audit.num_blocks_in_tables,
            num_named_blocks=audit.num_named_blocks,
            num_steps_queued=num_steps_queued,
            findings=[finding(f"worker {worker[:8]}", kind, text) for kind, text in findings],
        ),
        slots=pack_u32(audit.slots),
    )
