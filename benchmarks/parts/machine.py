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


def read_bandwidth(num_threads: int, repeats: int = 7) -> float:
    """Return the best rate of a sum over 1 GiB, in bytes per second."""
    torch.set_num_threads(num_threads)
    memory = torch.ones(BANDWIDTH_BYTES // 8, dtype=torch.int64)
    best = 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        memory.sum()
        best = max(best, BANDWIDTH_BYTES / (time.perf_counter() - start))
    return best
