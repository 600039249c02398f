"""Converts between wire messages of the worker and its plain data."""

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Final

from pagewire_protos.common.v1 import adapter_shapes_pb2, audit_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.adapters.model_shapes import ModelShapes
from pagewire_shared.adapters.shapes_convert import MAX_SHAPES_BYTES, shapes_to_message
from pagewire_shared.convert import finding, protocol_range
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.kv.transport_convert import transport_to_message
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.offload.layout_convert import layout_to_message
from pagewire_worker.plan.roles import WorkerRole
from pagewire_worker.runner.audit import SlotAudit

_logger = logging.getLogger(__name__)

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


def hello_to_message(
    info: ReplicaInfo,
    *,
    incarnation: int,
    highest_generation: int,
    held: dict[int, bytes],
    cell: str = "",
    warm_adapters: Iterable[bytes] = (),
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
        num_labels=info.num_labels,
        is_encoder=info.is_encoder,
        max_adapters=info.max_adapters,
        max_adapter_rank=info.max_adapter_rank,
        max_drafts=info.max_drafts,
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
        outside_store=info.outside_store if info.loads_blocks else "",
        places_copies=info.places_copies,
        kv_transports=map(transport_to_message, info.kv_transports),
        pull_transports=map(transport_to_message, info.pull_transports),
        host_id=info.host_id,
        takes_prefixes=True,
        cell=cell,
        warm_adapters=b"".join(warm_adapters),
        adapter_shapes=_shapes(info.adapter_shapes),
        is_exact=info.is_exact,
    )


def _shapes(shapes: ModelShapes | None) -> adapter_shapes_pb2.AdapterShapes | None:
    message = None if shapes is None else shapes_to_message(shapes)
    if message is not None and message.ByteSize() > MAX_SHAPES_BYTES:
        _logger.warning(
            "the shapes of the model take %d bytes, more than %d: whether an adapter fits is found "
            "with its first request",
            message.ByteSize(),
            MAX_SHAPES_BYTES,
        )
        return None
    return message


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
