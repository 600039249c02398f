"""Converts between the messages of a worker's stream and the core's plain data."""

import hashlib
from collections.abc import Iterable

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as pb
from pagewire_scheduler.core.data.step_plan import (
    NewSequence,
    PromptLogprobs,
    StepFailure,
    StepPlan,
    StepResult,
)
from pagewire_scheduler.core.data.stream_limits import StreamLimits
from pagewire_scheduler.core.data.worker_info import ALL_ROLES, ModelInfo, Role, WorkerInfo
from pagewire_shared.errors import PagewireError, PeerRefusedError, WireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import (
    array_f32,
    array_u32,
    pack_names,
    pack_u32,
    require_one_length,
    unpack_f32,
    unpack_names,
    unpack_u32,
)
from pagewire_shared.kv.block_hash import layout_fingerprint
from pagewire_shared.kv.transport_convert import transports_from_message
from pagewire_shared.rpc.errors import from_detail
from pagewire_shared.sampling.convert import (
    outputs_to_message,
    pooling_to_message,
    sampling_to_message,
)
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

_ROLES = {pb.WORKER_ROLE_PREFILL: Role.PREFILL, pb.WORKER_ROLE_DECODE: Role.DECODE}
_ROLE_OF_NUMBER: dict[int, Role] = dict(_ROLES.items())


def worker_info(hello: pb.WorkerHello) -> WorkerInfo:
    """Return the hello as plain data. Raises PeerRefusedError for a layout not supported yet."""
    if len(hello.layout.groups) != 1:
        raise PeerRefusedError("one cache group is supported", field="layout.groups")
    group = hello.layout.groups[0]
    capacity = hello.capacity
    model = ModelInfo(
        name=hello.model,
        model_fingerprint=hello.layout.model_fingerprint,
        tokenizer_fingerprint=hello.tokenizer_fingerprint,
        # A longer sequence would not fit in one plan.
        max_model_len=min(
            capacity.max_model_len, StreamLimits().longest_sequence(group.block_size)
        ),
        vocab_size=capacity.vocab_size,
        block_size=group.block_size,
        embedding_size=capacity.embedding_size,
        fingerprint_version=hello.layout.fingerprint_version,
    )
    return WorkerInfo(
        worker_id=hello.worker_id,
        incarnation=hello.incarnation,
        model=model,
        layout_fingerprint=_layout_fingerprint(hello.layout),
        dtype=group.dtype,
        num_blocks=capacity.num_blocks,
        max_num_seqs=capacity.max_num_seqs,
        max_num_batched_tokens=capacity.max_num_batched_tokens,
        shared_step_tokens=capacity.shared_step_tokens,
        steps_in_flight=capacity.steps_in_flight,
        window=_window(group),
        held=_held(hello, capacity.num_blocks),
        bytes_per_block=sum(group.bytes_per_block for group in hello.layout.groups),
        loads_blocks=hello.loads_blocks,
        roles=roles_from_message(hello.roles),
        # Older workers, without transports, name endpoints at which they refuse all pulls.
        kv_endpoint=hello.kv_endpoints[0] if hello.kv_transports and hello.kv_endpoints else "",
        kv_transports=transports_from_message(hello.kv_transports),
        pull_transports=transports_from_message(hello.pull_transports),
        host_id=hello.host_id,
        takes_prefixes=hello.takes_prefixes,
    )


def roles_from_message(numbers: Iterable[int]) -> frozenset[Role]:
    """Return roles; all roles when none is listed. Raises PeerRefusedError for unknown numbers."""
    unknown = [number for number in numbers if number not in _ROLE_OF_NUMBER]
    if unknown:
        raise PeerRefusedError(f"unknown worker roles {unknown}", field="roles")
    return frozenset(_ROLE_OF_NUMBER[number] for number in numbers) or ALL_ROLES


def roles_to_message(roles: Iterable[Role]) -> "list[pb.WorkerRole]":
    """Return the wire form, in a fixed order."""
    return [number for number, role in _ROLES.items() if role in set(roles)]


def _window(group: layout_pb2.CacheGroup) -> int | None:
    if group.kind == layout_pb2.CACHE_KIND_FULL:
        return None
    if group.kind != layout_pb2.CACHE_KIND_SLIDING or not group.window:
        raise PeerRefusedError(
            "full attention, or sliding with a window, is supported", field="layout.groups"
        )
    return group.window


def _layout_fingerprint(layout: layout_pb2.KvLayout) -> bytes:
    groups = [
        (
            int(group.kind),
            group.num_layers,
            group.block_size,
            group.bytes_per_block,
            group.shard,
            group.num_shards,
            group.dtype,
        )
        for group in layout.groups
    ]
    # Blocks of another device class or kernel set hold other roundings of the same values.
    parts = layout_fingerprint(groups) + layout.numerics_fingerprint
    return hashlib.sha256(parts).digest()[:16]


def _held(hello: pb.WorkerHello, num_blocks: int) -> tuple[tuple[BlockName, int], ...]:
    names, blocks = unpack_names(hello.held_names), unpack_u32(hello.held_blocks)
    if len(names) != len(blocks) or any(block >= num_blocks for block in blocks):
        raise PeerRefusedError("held_names and held_blocks do not match", field="held_blocks")
    return tuple((BlockName(name), block) for name, block in zip(names, blocks, strict=True))


def plan_message(plan: StepPlan) -> pb.StepPlan:
    """Return the wire form of `plan`."""
    return pb.StepPlan(
        generation=plan.generation,
        incarnation=plan.incarnation,
        step_id=plan.step_id,
        freed_slots=pack_u32(plan.freed_slots),
        new_requests=[_new_request(sequence) for sequence in plan.new_sequences],
        slots=pack_u32(plan.slots),
        starts=pack_u32(plan.starts),
        num_new_tokens=pack_u32(plan.num_new_tokens),
        samples=bytes(plan.samples),
        num_new_blocks=pack_u32(plan.num_new_blocks),
        new_block_ids=pack_u32(plan.new_block_ids),
        named_blocks=pack_u32(plan.named_blocks),
        names=pack_names(plan.names),
        named_slots=pack_u32(plan.named_slots),
        fork_slots=pack_u32(plan.fork_slots),
        fork_sources=pack_u32(plan.fork_sources),
        fork_choices=pack_u32(plan.fork_choices),
        appended_slots=pack_u32(plan.appended_slots),
        appended_token_ids=pack_u32(plan.appended_token_ids),
        copy_slots=pack_u32(plan.copy_slots),
        copy_sources=pack_u32(plan.copy_sources),
        copy_destinations=pack_u32(plan.copy_destinations),
        released_grammars=pack_names(plan.released_grammars),
    )


def _new_request(sequence: NewSequence) -> pb.NewRequest:
    sampling = sampling_to_message(sequence.sampling)
    sampling.ClearField("structured_outputs")  # the worker has the grammar by its id
    pooling = sequence.pooling
    if sequence.num_candidates:
        sampling.logprobs = sequence.num_candidates
    return pb.NewRequest(
        slot=sequence.slot,
        request_id=sequence.request_id,
        choice=sequence.choice,
        prompt_token_ids=pack_u32(sequence.prompt_token_ids),
        emitted_token_ids=pack_u32(sequence.emitted_token_ids),
        sampling=sampling,
        block_tables=[pb.BlockTable(block_ids=pack_u32(sequence.block_ids))],
        eos_token_ids=pack_u32(sequence.eos_token_ids),
        is_beam=sequence.num_candidates > 0,
        grammar_id=sequence.grammar_id,
        pooling=pooling_to_message(pooling) if pooling is not None else None,
        tenant=sequence.tenant or None,
        prefix_slot=sequence.prefix_slot,
        num_prefix_tokens=sequence.num_prefix_tokens,
    )


def compile_message(grammar_id: bytes, params: StructuredOutputsParams) -> pb.CompileGrammar:
    """Return the request to compile a grammar."""
    return pb.CompileGrammar(grammar_id=grammar_id, structured_outputs=outputs_to_message(params))


def compile_error(message: pb.GrammarCompiled) -> PagewireError | None:
    """Return the error of a grammar that does not compile, or None."""
    return from_detail(message.error) if message.HasField("error") else None


def step_result(message: pb.StepResult) -> StepResult:
    """Return the result as plain data. Raises WireError on torn arrays."""
    failure = None
    if message.HasField("failure"):
        culprits = tuple(unpack_u32(message.failure.culprit_slots))
        failure = StepFailure(message.failure.message, culprits)
    return StepResult(
        generation=message.generation,
        incarnation=message.incarnation,
        step_id=message.step_id,
        slots=unpack_u32(message.slots),
        counts=unpack_u32(message.counts),
        token_ids=unpack_u32(message.token_ids),
        logprobs=unpack_f32(message.logprobs),
        ranks=unpack_u32(message.ranks),
        num_top=unpack_u32(message.num_top),
        top_token_ids=array_u32(message.top_token_ids),
        top_logprobs=array_f32(message.top_logprobs),
        prompt=_prompt_logprobs(message.prompt) if message.HasField("prompt") else None,
        vectors=message.vectors,
        model_time_us=message.model_time_us,
        failed_slots=unpack_u32(message.failed_slots),
        failed_reason=message.failed_reason,
        failure=failure,
        given_up=_given_up(message),
    )


def _given_up(message: pb.StepResult) -> dict[int, str]:
    if not message.given_up_slots:
        return {}
    slots, reasons = unpack_u32(message.given_up_slots), list(message.given_up_reasons)
    require_one_length(given_up_slots=slots, given_up_reasons=reasons)
    return dict(zip(slots, reasons, strict=True))


def _prompt_logprobs(message: pb.PromptLogprobs) -> PromptLogprobs:
    prompt = PromptLogprobs(
        slots=unpack_u32(message.slots),
        first_positions=unpack_u32(message.first_positions),
        counts=unpack_u32(message.counts),
        logprobs=unpack_f32(message.logprobs),
        ranks=unpack_u32(message.ranks),
        num_top=unpack_u32(message.num_top),
        top_token_ids=unpack_u32(message.top_token_ids),
        top_logprobs=unpack_f32(message.top_logprobs),
    )
    require_one_length(
        slots=prompt.slots, first_positions=prompt.first_positions, counts=prompt.counts
    )
    num_top = prompt.num_top or [0] * len(prompt.logprobs)
    require_one_length(logprobs=prompt.logprobs, ranks=prompt.ranks, num_top=num_top)
    if not sum(num_top) == len(prompt.top_token_ids) == len(prompt.top_logprobs):
        raise WireError("alternatives of prompt tokens are announced that did not come")
    return prompt
