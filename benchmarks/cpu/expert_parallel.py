"""Times steps of a mixture of experts by ranks with whole experts, and by ranks that divide them.

    python benchmarks/make_checkpoint.py --shape qwen3-moe-1.5gb
    python benchmarks/cpu/expert_parallel.py checkpoints/qwen3-moe-1.5gb --pairs 10

Prints the time of a step with divided experts, and that with whole experts by it: the mean of
pairs, and its 95 % bound. Both groups of ranks compute in turn, with as many threads. Tokens are
random. Results are in docs/performance.md.
"""

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import ModelBackend, StepBatch
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.loader import Replica, load_replica
from pagewire_worker.loading.token_budget import probe_batch

sys.path.append(str(Path(__file__).resolve().parents[1]))
from parts.machine import describe
from parts.pairs import mean_with_bound

LEAST_SECONDS = 0.5
"""Of the steps of one side of a pair."""

CONTEXT = 64
"""Tokens before the one that a decode computes."""


def loaded(arguments: argparse.Namespace, *, is_spread: bool) -> Replica:
    """Return the model of a group of ranks."""
    return load_replica(
        WorkerConfig(
            model=str(arguments.model),
            device="cpu",
            dtype=arguments.dtype,
            cpu_backend="fused",
            cpu_isa=arguments.isa,
            cpu_threads=arguments.threads,
            quantization=arguments.quantization,
            load_format=arguments.load_format,
            max_model_len=1024,
            max_num_batched_tokens=1024,
            kv_cache_memory=512 * 1024**2,
            sum_slices=arguments.slices,
            tensor_parallel_size=arguments.ranks,
            enable_expert_parallel=is_spread,
        )
    )


def random_tokens(num_tokens: int) -> torch.Tensor:
    """Return token ids, [num_tokens], that any vocabulary has."""
    return torch.randint(0, 1000, (num_tokens,), generator=torch.Generator().manual_seed(1))


def decode_of(backend: ModelBackend, num_seqs: int) -> StepBatch:
    """Return a step in which each sequence computes one token."""
    size = backend.kv_cache.block_size
    num_blocks = CONTEXT // size + 1
    blocks = np.arange(num_seqs * num_blocks).reshape(num_seqs, num_blocks)
    return StepBatch(
        token_ids=random_tokens(num_seqs),
        positions=torch.full((num_seqs,), CONTEXT),
        slot_mapping=torch.from_numpy(blocks[:, -1] * size),
        output_rows=torch.arange(num_seqs),
        attention=AttentionMetadata(
            np.arange(num_seqs + 1), np.full(num_seqs, CONTEXT + 1), blocks
        ),
        is_decode=True,
    )


def prompt_of(backend: ModelBackend, num_tokens: int) -> StepBatch:
    """Return a step that computes a prompt."""
    batch = probe_batch(backend, num_tokens, torch.tensor([num_tokens - 1]))
    return replace(batch, token_ids=random_tokens(num_tokens))


@torch.inference_mode()
def seconds(backend: ModelBackend, step: StepBatch) -> float:
    """Return the seconds of a step without the output layer."""
    began, count = time.perf_counter(), 0
    while (spent := time.perf_counter() - began) < LEAST_SECONDS:
        backend.forward(step)
        count += 1
    return spent / count


def compare(replicas: list[Replica], arguments: argparse.Namespace) -> None:
    """Print a row of the table for each step."""
    backends = [one.model_runner.backend for one in replicas]
    print(" and ".join(one.kernel_set for one in backends))
    print("\n| step | divided, ms | whole, by that |\n| --- | --- | --- |")
    cases = [(f"decode of {size}", decode_of, size) for size in arguments.decodes]
    cases += [(f"prompt of {size}", prompt_of, size) for size in arguments.prompts]
    for name, make, size in cases:
        steps = [(one, make(one, size)) for one in backends]
        for step in steps:
            seconds(*step)
        pairs = [[seconds(*step) for step in steps] for _ in range(arguments.pairs)]
        mean, bound = mean_with_bound([whole / divided for divided, whole in pairs])
        least = min(divided for divided, _ in pairs)
        print(f"| {name} | {1000 * least:.1f} | {mean:.2f} ± {bound:.2f} |", flush=True)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of all ranks together")
    parser.add_argument("--slices", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--decodes", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--prompts", type=int, nargs="*", default=[512])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--load-format", default="auto")
    arguments = parser.parse_args()
    print(f"{describe()}; load average {os.getloadavg()[0]:.1f}")
    replicas = [loaded(arguments, is_spread=is_spread) for is_spread in (False, True)]
    try:
        compare(replicas, arguments)
    finally:
        for one in replicas:
            if one.group is not None:
                one.group.close()


if __name__ == "__main__":
    main()
