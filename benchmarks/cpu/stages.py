"""Times steps of a model that is computed by one process, by ranks, or in stages.

    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b
    python benchmarks/cpu/stages.py checkpoints/qwen2.5-0.5b --prompt 256 --decodes 1 16 64

Prints the median of a forward step in milliseconds, per layout: ranks of each stage times stages.
All layouts have the same number of threads between them.
"""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import ModelBackend, StepBatch
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.loader import load_replica
from pagewire_worker.loading.token_budget import probe_batch

sys.path.append(str(Path(__file__).resolve().parents[1]))
from parts.machine import describe

REPEATS = 7
CONTEXT = 128
"""Tokens before the one that a decode computes."""

LAYOUTS = ((1, 1), (2, 1), (1, 2), (2, 2))


@dataclass(frozen=True, slots=True)
class Steps:
    """What is timed: tokens of a prompt, and sequences of each decode."""

    prompt: int
    decodes: tuple[int, ...]

    @property
    def names(self) -> list[str]:
        """Titles of the columns."""
        return [f"prompt of {self.prompt}", *(f"decode of {size}" for size in self.decodes)]

    def seconds(self, backend: ModelBackend) -> list[float]:
        """Return the median time of each step."""
        prompt = probe_batch(backend, self.prompt, torch.tensor([self.prompt - 1]))
        steps = [prompt, *(decode_of(backend, size) for size in self.decodes)]
        return [median(backend, step) for step in steps]


def decode_of(backend: ModelBackend, num_seqs: int) -> StepBatch:
    """Return a step in which each sequence computes one token."""
    size = backend.kv_cache.block_size
    num_blocks = CONTEXT // size + 1
    blocks = np.arange(num_seqs * num_blocks).reshape(num_seqs, num_blocks)
    return StepBatch(
        token_ids=torch.zeros(num_seqs, dtype=torch.int64),
        positions=torch.full((num_seqs,), CONTEXT),
        slot_mapping=torch.from_numpy(blocks[:, -1] * size),
        output_rows=torch.arange(num_seqs),
        attention=AttentionMetadata(
            np.arange(num_seqs + 1), np.full(num_seqs, CONTEXT + 1), blocks
        ),
        is_decode=True,
    )


@torch.inference_mode()
def median(backend: ModelBackend, step: StepBatch) -> float:
    """Return the median seconds of a step, with the logits of its outputs."""
    seconds = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        backend.logits(backend.forward(step))
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def measure(options: argparse.Namespace, layout: tuple[int, int], steps: Steps) -> list[float]:
    """Return the seconds of each step in one layout."""
    config = WorkerConfig(
        model=options.model,
        tensor_parallel_size=layout[0],
        pipeline_parallel_size=layout[1],
        cpu_threads=options.threads,
        dtype="bfloat16",
        quantization=options.quantization,
        max_model_len=1024,
        max_num_batched_tokens=1024,
        kv_cache_memory=1 << 30,
    )
    replica = load_replica(config)
    try:
        return steps.seconds(replica.model_runner.backend)
    finally:
        if replica.group is not None:
            replica.group.close()


def main() -> int:
    """Print a line per layout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--decodes", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quantization", default="none")
    options = parser.parse_args()
    steps = Steps(options.prompt, tuple(options.decodes))
    print(f"{describe()}, {options.threads} threads in all; milliseconds")
    print(f"| ranks x stages | {' | '.join(steps.names)} |")
    for layout in LAYOUTS:
        if layout[0] * layout[1] > options.threads:
            continue
        found = measure(options, layout, steps)
        print(f"| {layout[0]} x {layout[1]} | {' | '.join(f'{1e3 * s:.1f}' for s in found)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
