"""Converts between the messages of a worker's stream and the core's plain data."""

import hashlib
from collections.abc import Iterable
from typing import Final

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as pb
from pagewire_scheduler.convert.adapters import adapter_shapes, num_adapter_slots, warm_adapters
from pagewire_scheduler.core.blocks.cache_groups import CacheGroups
from pagewire_scheduler.core.data.stream_limits import StreamLimits
from pagewire_scheduler.core.data.worker_info import ALL_ROLES, ModelInfo, Role, WorkerInfo
from pagewire_shared.errors import PagewireError, PeerRefusedError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import unpack_names, unpack_u32
from pagewire_shared.kv.block_hash import layout_fingerprint
from pagewire_shared.kv.transport_convert import transports_from_message
from pagewire_shared.rpc.errors import from_detail
from pagewire_shared.sampling.convert import outputs_to_message
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_shared.sleep.convert import sleep_from_message
from pagewire_shared.weights.convert import source_from_message

MAX_GROUPS: Final = 8
"""Cache groups of a worker: a step sends a block of each for every sequence."""

MAX_DRAFTS: Final = 255
"""Of a sequence in a step, where a plan has a byte for them."""

MAX_STORE_NAME: Final = 256

STATE_WINDOW: Final = 2
"""A state is made of that of the token before."""

_ROLES = {pb.WORKER_ROLE_PREFILL: Role.PREFILL, pb.WORKER_ROLE_DECODE: Role.DECODE}
_ROLE_OF_NUMBER: dict[int, Role] = dict(_ROLES.items())


def worker_info(hello: pb.WorkerHello) -> WorkerInfo:
    """Return the hello as plain data. Raises PeerRefusedError for a layout not supported yet."""
    groups = cache_groups(hello.layout)
    group, capacity = hello.layout.groups[0], hello.capacity
    return WorkerInfo(
        worker_id=hello.worker_id,
        incarnation=hello.incarnation,
        model=_model_info(hello, len(groups)),
        layout_fingerprint=_layout_fingerprint(hello.layout),
        dtype=group.dtype,
        num_blocks=capacity.num_blocks,
        max_num_seqs=capacity.max_num_seqs,
        max_num_batched_tokens=capacity.max_num_batched_tokens,
        shared_step_tokens=capacity.shared_step_tokens,
        steps_in_flight=capacity.steps_in_flight,
        groups=groups,
        held=_held(hello, capacity.num_blocks),
        bytes_per_block=group.bytes_per_block,
        loads_blocks=hello.loads_blocks,
        outside_store=_outside_store(hello.outside_store),
        places_copies=hello.loads_blocks and hello.places_copies,
        roles=roles_from_message(hello.roles),
        kv_endpoint=_kv_endpoint(hello),
        kv_transports=transports_from_message(hello.kv_transports),
        pull_transports=transports_from_message(hello.pull_transports),
        host_id=hello.host_id,
        takes_prefixes=hello.takes_prefixes,
        max_adapters=num_adapter_slots(capacity),
        max_adapter_rank=capacity.max_adapter_rank,
        adapter_shapes=adapter_shapes(hello),
        warm_adapters=warm_adapters(hello.warm_adapters),
        max_drafts=min(capacity.max_drafts, MAX_DRAFTS),
        is_exact=hello.is_exact,
        can_sleep=hello.can_sleep,
        sleep_after=hello.sleep_after_ms / 1000,
        sleep=sleep_from_message(hello.sleep) if hello.HasField("sleep") else None,
        source=source_from_message(hello.weights) if hello.HasField("weights") else None,
        failed_update=_failed_update(hello),
    )


def _model_info(hello: pb.WorkerHello, num_groups: int) -> ModelInfo:
    group, capacity = hello.layout.groups[0], hello.capacity
    # A longer sequence would not fit in one plan.
    longest = StreamLimits().longest_sequence(group.block_size, num_groups)
    return ModelInfo(
        name=hello.model,
        model_fingerprint=hello.layout.model_fingerprint,
        tokenizer_fingerprint=hello.tokenizer_fingerprint,
        max_model_len=min(capacity.max_model_len, longest),
        vocab_size=capacity.vocab_size,
        block_size=group.block_size,
        embedding_size=capacity.embedding_size,
        num_labels=capacity.num_labels,
        is_encoder=capacity.is_encoder,
        fingerprint_version=hello.layout.fingerprint_version,
    )


def _failed_update(hello: pb.WorkerHello) -> tuple[int, PagewireError] | None:
    if not hello.HasField("weights_failure"):
        return None
    return hello.weights_failure.serial, from_detail(hello.weights_failure.error)


def _outside_store(name: str) -> str:
    """Return the name of a store. Raises PeerRefusedError for one that is no short line."""
    if len(name) > MAX_STORE_NAME or not (name.isascii() and name.isprintable()):
        raise PeerRefusedError(
            f"a store's name is at most {MAX_STORE_NAME} printable ASCII characters",
            field="outside_store",
        )
    return name


def _kv_endpoint(hello: pb.WorkerHello) -> str:
    # Older workers, without transports, name endpoints at which they refuse all pulls.
    return hello.kv_endpoints[0] if hello.kv_transports and hello.kv_endpoints else ""


def roles_from_message(numbers: Iterable[int]) -> frozenset[Role]:
    """Return roles; all roles when none is listed. Raises PeerRefusedError for unknown numbers."""
    unknown = [number for number in numbers if number not in _ROLE_OF_NUMBER]
    if unknown:
        raise PeerRefusedError(f"unknown worker roles {unknown}", field="roles")
    return frozenset(_ROLE_OF_NUMBER[number] for number in numbers) or ALL_ROLES


def roles_to_message(roles: Iterable[Role]) -> "list[pb.WorkerRole]":
    """Return the wire form, in a fixed order."""
    return [number for number, role in _ROLES.items() if role in set(roles)]


def cache_groups(layout: layout_pb2.KvLayout) -> CacheGroups:
    """Return the groups of `layout`. Raises PeerRefusedError for groups that share no pool."""
    if not 1 <= len(layout.groups) <= MAX_GROUPS:
        raise _refused(f"1 to {MAX_GROUPS} cache groups are supported, not {len(layout.groups)}")
    forms = {(one.block_size, one.bytes_per_block, one.dtype) for one in layout.groups}
    if len(forms) > 1:
        raise _refused("cache groups with blocks of different sizes or types are not supported")
    windows = tuple(_window(group) for group in layout.groups)
    if None in windows[windows.count(None) :]:
        raise _refused("cache groups that read all positions come first")
    return CacheGroups(windows)


def _window(group: layout_pb2.CacheGroup) -> int | None:
    if group.kind in (layout_pb2.CACHE_KIND_FULL, layout_pb2.CACHE_KIND_LATENT):
        return None
    if group.kind == layout_pb2.CACHE_KIND_STATE:
        return STATE_WINDOW
    if group.kind != layout_pb2.CACHE_KIND_SLIDING or not group.window:
        raise _refused("a cache group is of no known kind, or sliding without a window")
    return group.window


def _refused(message: str) -> PeerRefusedError:
    return PeerRefusedError(message, field="layout.groups")


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


def compile_message(grammar_id: bytes, params: StructuredOutputsParams) -> pb.CompileGrammar:
    """Return the request to compile a grammar."""
    return pb.CompileGrammar(grammar_id=grammar_id, structured_outputs=outputs_to_message(params))


def compile_error(message: pb.GrammarCompiled) -> PagewireError | None:
    """Return the error of a grammar that does not compile, or None."""
    return from_detail(message.error) if message.HasField("error") else None
