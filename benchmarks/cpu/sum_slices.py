"""Measures what sums in slices cost a model of one rank.

    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b
    python benchmarks/cpu/sum_slices.py checkpoints/qwen2.5-0.5b --slices 4 --pairs 10

Prints the CPU time of a step with slices by that of one without, for one row and for a chunk of a
prompt: the mean of pairs, and its 95 % bound. Both kinds of steps run in turn in one thread.
Results are in docs/performance.md.
"""

import argparse
import sys
import time
from pathlib import Path

import torch

from pagewire_worker.backend.backend import ModelBackend, StepBatch
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.loader import load_replica
from pagewire_worker.loading.token_budget import probe_batch

sys.path.append(str(Path(__file__).resolve().parents[1]))
from parts.machine import describe
from parts.pairs import mean_with_bound

LEAST_SECONDS = 0.8
"""Of the steps of one side of a pair."""


def loaded(arguments: argparse.Namespace, slices: int) -> ModelBackend:
    """Return the model over a cache of its own."""
    replica = load_replica(
        WorkerConfig(
            model=str(arguments.model),
            device="cpu",
            dtype=arguments.dtype,
            cpu_backend="fused",
            cpu_isa=arguments.isa,
            cpu_threads=1,
            quantization=arguments.quantization,
            max_model_len=arguments.chunk + 1,
            max_num_batched_tokens=arguments.chunk,
            kv_cache_memory=64 * 1024**2,
            sum_slices=slices,
        )
    )
    return replica.model_runner.backend


@torch.inference_mode()
def seconds(backend: ModelBackend, step: StepBatch) -> float:
    """Return the CPU seconds of a step without the output layer, which has no slices."""
    began, count = time.thread_time(), 0
    while (spent := time.thread_time() - began) < LEAST_SECONDS:
        backend.forward(step)
        count += 1
    return spent / count


def main() -> None:
    """Measure and print a row of a table for each step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--chunk", type=int, default=512, help="tokens of a chunk of a prompt")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--quantization", default="none")
    arguments = parser.parse_args()
    print(describe())
    plain, sliced = (loaded(arguments, slices) for slices in (1, arguments.slices))
    print(f"{plain.kernel_set}; {sliced.kernel_set}\n")
    print("| rows | plain, ms | ratio |\n| --- | --- | --- |")
    for rows in (1, arguments.chunk):
        steps = [(one, probe_batch(one, rows, torch.tensor([rows - 1]))) for one in (plain, sliced)]
        for one in steps:
            seconds(*one)
        pairs = [[seconds(*one) for one in steps] for _ in range(arguments.pairs)]
        mean, bound = mean_with_bound([other / one for one, other in pairs])
        least = min(one for one, _ in pairs)
        print(f"| {rows} | {1000 * least:.1f} | {mean:.3f} ± {bound:.3f} |", flush=True)


if __name__ == "__main__":
    main()
