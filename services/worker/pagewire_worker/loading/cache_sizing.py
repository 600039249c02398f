"""Makes the KV cache of a replica as large as settings and the memory of its device allow."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pagewire_shared.process.sizes import format_size
from pagewire_worker.backend.source import LoadedReplicaModel
from pagewire_worker.host.cpu import free_memory_bytes
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.kv.layer_watch import LayerWatch
from pagewire_worker.loading.cache_budget import (
    CacheBudget,
    asked_budget,
    cpu_budget,
    device_budget,
    plan_num_blocks,
)
from pagewire_worker.loading.memory_probe import CudaProbe, MemoryProbe
from pagewire_worker.loading.profile_run import LargestStep, MostSampling, profile_step

_LEAST_LEN = 64
"""Tokens of the shortest context worth serving."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Inputs for the size of a cache.

    Attributes:
        step: The largest step.
        asked_bytes: Value of --kv-cache-memory; None for the memory that the device has left.
        utilization: Value of --gpu-memory-utilization.
        graph_bytes: Future size of captured graphs.
        sampling: How tokens are sampled; None for torch.
        is_len_fitted: A cache with room for a part of the longest sequence will do.
        num_ranks: Processes that have the asked bytes between them.
        per_host: Those of them that share the memory of a host.
        agree: From the number of blocks that this rank has room for to that of all ranks.
    """

    device: torch.device
    dtype: torch.dtype
    block_size: int
    step: LargestStep
    asked_bytes: int | None
    utilization: float
    graph_bytes: int = 0
    sampling: MostSampling | None = None
    is_len_fitted: bool = False
    num_ranks: int = 1
    per_host: int = 1
    agree: Callable[[int], int] = int


def make_cache(
    model: LoadedReplicaModel,
    settings: CacheSettings,
    on_layer: LayerWatch,
    probe: MemoryProbe | None = None,
) -> KvCache:
    """Allocate the cache of a model whose weights are loaded.

    Args:
        model: Run once, on devices with their own memory.
        on_layer: Called for each layer of that run.
        probe: Measures the memory of such a device; CudaProbe on CUDA by default.

    Raises:
        StartupError: There is too little memory for one sequence.
    """
    return KvCache(
        shape=model.cache_shape,
        num_blocks=settings.agree(count_blocks(model, settings, on_layer, probe)),
        block_size=settings.block_size,
        device=settings.device,
        dtype=settings.dtype,
    )


def count_blocks(
    model: LoadedReplicaModel,
    settings: CacheSettings,
    on_layer: LayerWatch,
    probe: MemoryProbe | None = None,
) -> int:
    """Return the number of blocks that there is memory for; as `make_cache`."""
    if probe is None and settings.device.type == "cuda":
        probe = CudaProbe(settings.device)
    budget = _budget(model, settings, on_layer, probe)
    return plan_num_blocks(
        model.cache_shape,
        budget,
        block_size=settings.block_size,
        dtype=settings.dtype,
        max_model_len=settings.step.seq_len,
        max_num_seqs=settings.step.num_seqs,
        least_len=_LEAST_LEN if settings.is_len_fitted else None,
    )


def _budget(
    model: LoadedReplicaModel,
    settings: CacheSettings,
    on_layer: LayerWatch,
    probe: MemoryProbe | None,
) -> CacheBudget:
    if probe is None:
        free_bytes = free_memory_bytes() // settings.per_host
        if settings.asked_bytes is not None:
            return asked_budget(settings.asked_bytes // settings.num_ranks, free_bytes)
        return cpu_budget(free_bytes, settings.per_host)
    if settings.asked_bytes is not None:
        found = probe.in_use()
        return asked_budget(settings.asked_bytes, found.total - found.used)
    memory = profile_step(
        model,
        settings.step,
        probe,
        on_layer,
        block_size=settings.block_size,
        device=settings.device,
        dtype=settings.dtype,
        sampling=settings.sampling,
        graph_bytes=settings.graph_bytes,
    )
    budget = device_budget(memory, settings.utilization)
    _logger.info(
        "KV cache: %s of %s; in use %s, a step of %d tokens %s, graphs %s",
        format_size(max(budget.num_bytes, 0)),
        format_size(memory.total),
        format_size(memory.used),
        memory.num_tokens,
        format_size(memory.step),
        format_size(memory.graphs),
    )
    return budget
