"""What the machine under a benchmark is and how fast its memory can be read: the limit of decoding.

Owns no benchmark of its own besides the read bandwidth.
"""

import os
import platform
import time
from pathlib import Path

import torch

BANDWIDTH_BYTES = 1 << 30


def describe() -> str:
    """Return one line: processor, cores, torch version."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores, torch {torch.__version__}"


def read_bandwidth(num_threads: int, repeats: int = 5) -> float:
    """Return the best rate of a matrix-vector product over 1 GiB of bf16 weights, in bytes per
    second.

    That is what decoding one token at batch 1 does, with nothing else around it.
    """
    torch.set_num_threads(num_threads)
    rows = BANDWIDTH_BYTES // 2 // 4096
    weight = torch.full((rows, 4096), 0.5, dtype=torch.bfloat16)
    vector = torch.ones(1, 4096, dtype=torch.bfloat16)
    best = 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        torch.nn.functional.linear(vector, weight)
        best = max(best, BANDWIDTH_BYTES / (time.perf_counter() - start))
    return best
