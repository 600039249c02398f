"""Describes a loaded replica: identity, fingerprints and capacity."""

import hashlib
import json

import torch

from pagewire_shared.identity.ids import mint_id, tokenizer_fingerprint
from pagewire_shared.kv.arena import boot_id
from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.backend.backend import ModelBackend
from pagewire_worker.backend.source import LoadedReplicaModel
from pagewire_worker.config import WorkerConfig
from pagewire_worker.connectors.making import outside_store_of, places_copies
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.loading.replica_shape import ReplicaShape
from pagewire_worker.loading.speculation import most_drafts
from pagewire_worker.loading.token_budget import StepTokens
from pagewire_worker.plan.roles import parse_roles
from pagewire_worker.runner.model_runner import ModelRunner

TRANSPORTS = {
    "auto": (KvTransport.SHARED_MEMORY, KvTransport.GRPC),
    "shared": (KvTransport.SHARED_MEMORY,),
    "grpc": (KvTransport.GRPC,),
    "nixl": (KvTransport.NIXL, KvTransport.GRPC),
    "mooncake": (KvTransport.MOONCAKE, KvTransport.GRPC),
    "off": (),
}
"""Of --kv-transport, the better ones first."""


def hands_out(config: WorkerConfig) -> bool:
    """Return whether other workers may pull blocks."""
    return config.kv_transport != "off" and config.listen is not None


def describe(
    config: WorkerConfig,
    shape: ReplicaShape,
    model: LoadedReplicaModel,
    model_runner: ModelRunner,
    step_tokens: StepTokens,
    max_model_len: int,
) -> ReplicaInfo:
    """Return what a loaded replica reports to its scheduler, with an id of its own."""
    backend, blocks = model_runner.backend, model_runner.blocks.memory
    return ReplicaInfo(
        worker_id=mint_id(),
        served_model_name=config.served_model_name or config.model,
        tokenizer_fingerprint=tokenizer_fingerprint(shape.files.tokenizer_folder),
        model_fingerprint=shape.fingerprint,
        numerics_fingerprint=numerics_fingerprint(
            shape.device.type,
            shape.dtype,
            _kernel_set(shape, backend),
            config.quantization,
            is_exact=backend.is_exact,
        ),
        cache_groups=tuple(blocks.layout()),
        num_blocks=blocks.num_blocks,
        max_num_seqs=shape.max_num_seqs,
        max_num_batched_tokens=step_tokens.most,
        shared_step_tokens=step_tokens.shared,
        max_model_len=max_model_len,
        steps_in_flight=config.steps_in_flight,
        vocab_size=shape.model.vocab_size,
        embedding_size=backend.embedding_size,
        num_labels=model.head.num_labels if model.head is not None else 0,
        is_encoder=shape.model.is_encoder,
        loads_blocks=config.kv_offload != "off",
        outside_store=outside_store_of(config),
        places_copies=places_copies(config),
        roles=parse_roles(config.roles),
        kv_transports=TRANSPORTS[config.kv_transport] if hands_out(config) else (),
        pull_transports=TRANSPORTS[config.kv_transport],
        host_id=_host_id(),
        max_adapters=config.max_loras if config.enable_lora else 0,
        max_adapter_rank=config.max_lora_rank if config.enable_lora else 0,
        adapter_shapes=model.adapters.shapes if model.adapters is not None else None,
        max_drafts=most_drafts(config),
        is_exact=backend.is_exact,
    )


def _host_id() -> str:
    try:
        return boot_id()
    except OSError:
        return ""


def _kernel_set(shape: ReplicaShape, backend: ModelBackend) -> str:
    """Return the implementations in use, and which of two rotations a model takes."""
    first = shape.model.first_context
    is_long = first is not None and shape.max_model_len > first
    return f"{backend.kernel_set},long" if is_long else backend.kernel_set


def numerics_fingerprint(
    device: str, dtype: torch.dtype, kernel_set: str, quantization: str, *, is_exact: bool
) -> bytes:
    """Return SHA-256 of what decides the last bits of an output."""
    facts = {
        "device": device,
        "dtype": str(dtype),
        "quantization": quantization,
        "kernels": kernel_set,
        "exact": is_exact,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
