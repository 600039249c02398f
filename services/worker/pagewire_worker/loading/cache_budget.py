"""Calculates the number of blocks of a KV cache from memory sizes measured elsewhere."""

from dataclasses import dataclass

import torch

from pagewire_shared.errors import StartupError
from pagewire_shared.process.sizes import format_size
from pagewire_worker.kv.kv_cache import CacheShape, bytes_per_block

CPU_DEFAULT_BYTES = 1024**3
CPU_FREE_FRACTION = 0.25


@dataclass(frozen=True, slots=True)
class CacheBudget:
    """Memory for a KV cache.

    Attributes:
        num_bytes: How much; 0 or less for none.
        description: What it is, for an error.
        advice: What to change where it is too little.
        is_asked_for: Whether all of it is to be used, also beyond what sequences can need.
    """

    num_bytes: int
    field: str
    description: str
    advice: str
    is_asked_for: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of a device as a profile run measured it, in bytes.

    Attributes:
        used: In use while nothing runs: the model, its libraries, other processes.
        model: The part of `used` that this process has allocated, mostly weights.
        step: Peak of the largest step on top of `used`.
        num_tokens: Tokens of that step.
        graphs: Future size of captured graphs.
    """

    total: int
    used: int
    model: int
    step: int
    num_tokens: int
    graphs: int = 0


def asked_budget(num_bytes: int, free_bytes: int) -> CacheBudget:
    """Return the budget of --kv-cache-memory. Raises StartupError if it exceeds free memory."""
    if num_bytes > free_bytes:
        raise StartupError(
            f"--kv-cache-memory: {format_size(num_bytes)} asked for, but only "
            f"{format_size(free_bytes)} are free",
            field="kv_cache_memory",
        )
    return CacheBudget(
        num_bytes,
        "kv_cache_memory",
        f"{format_size(num_bytes)} of KV cache",
        "raise --kv-cache-memory or lower --max-model-len",
        is_asked_for=True,
    )


def cpu_budget(free_bytes: int, num_ranks: int = 1) -> CacheBudget:
    """Return a share of the free memory of a machine that other processes use too.

    Args:
        free_bytes: For this rank.
        num_ranks: Ranks that divide what a worker takes by default.
    """
    num_bytes = min(int(free_bytes * CPU_FREE_FRACTION), CPU_DEFAULT_BYTES // num_ranks)
    return CacheBudget(
        num_bytes,
        "kv_cache_memory",
        f"{format_size(num_bytes)} of KV cache",
        "raise --kv-cache-memory or lower --max-model-len",
    )


def device_budget(memory: DeviceMemory, utilization: float) -> CacheBudget:
    """Return the part of a device's memory that is left for the cache.

    Args:
        utilization: Share of the total that all uses together may take, in (0, 1].
    """
    allowed = int(memory.total * utilization)
    num_bytes = allowed - memory.used - memory.step - memory.graphs
    others = memory.used - memory.model
    return CacheBudget(
        num_bytes,
        "gpu_memory_utilization",
        f"--gpu-memory-utilization: {utilization:g} of {format_size(memory.total)} are "
        f"{format_size(allowed)}; {format_size(memory.model)} of weights, {format_size(others)} of "
        f"libraries and other processes, {format_size(memory.step)} for a step of "
        f"{memory.num_tokens} tokens and {format_size(memory.graphs)} of graphs leave "
        f"{format_size(max(num_bytes, 0))}, which",
        "raise --gpu-memory-utilization, lower --max-num-batched-tokens, --max-num-seqs or "
        "--max-model-len, or end what else uses the device",
    )


def plan_num_blocks(
    shape: CacheShape,
    budget: CacheBudget,
    *,
    block_size: int,
    dtype: torch.dtype,
    max_model_len: int,
    max_num_seqs: int,
    least_len: int | None = None,
) -> int:
    """Return the number of blocks to allocate.

    Args:
        shape, block_size, dtype: Together they give the size of a block.
        max_model_len: One sequence of this length must fit.
        least_len: Length of the sequence that must fit in its place; None for max_model_len.
        max_num_seqs: More than this many sequences of full length are never needed.

    Raises:
        StartupError: The budget is too little for one sequence.
    """
    block_bytes = bytes_per_block(shape, block_size, dtype)
    blocks_per_seq = shape.blocks_of(-(-max_model_len // block_size), block_size)
    num_blocks = max(budget.num_bytes, 0) // block_bytes
    if not budget.is_asked_for:
        num_blocks = min(num_blocks, blocks_per_seq * max_num_seqs)
    shortest = -(-(least_len or max_model_len) // block_size)
    least = min(blocks_per_seq, shape.blocks_of(shortest, block_size))
    if num_blocks < least:
        raise StartupError(
            f"{budget.description} hold {shape.longest(num_blocks, block_size)} tokens, less than "
            f"one sequence of {max_model_len}, which takes "
            f"{format_size(blocks_per_seq * block_bytes)}; {budget.advice}",
            field=budget.field,
        )
    return num_blocks
