"""The products of prompts on a CPU, against what its multiply-adds give from registers.

    python benchmarks/cpu/prompt_products.py

One thread, time of the thread. A loop that only multiplies and adds in registers (compiled here,
for AVX2) gives the limit of float32, in GFLOP/s. All take turns, and the best turn of each counts:
other work on the machine makes turns slower, never faster. Torch multiplies in float32 (MKL).
"""

import argparse
import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import TYPES, KernelPool, instruction_sets, pointer
from pagewire_worker.cpu_kernels.packing import Part, Storage, WeightArena, pack

SHAPES = ((1152, 896), (896, 896), (9728, 896), (896, 4864))
KINDS = {
    "float32": (torch.float32, abi.FLOAT32),
    "bfloat16": (torch.bfloat16, abi.BFLOAT16),
    "int8": (torch.bfloat16, abi.INT8),
    "int4": (torch.bfloat16, abi.INT4),
}
PEAK_FLOPS = 1 << 30
PEAK = """
#include <immintrin.h>
extern "C" float peak(long turns) {
  __m256 sums[12], x = _mm256_set1_ps(0.5f), y = _mm256_set1_ps(0.25f);
  for (auto& sum : sums) sum = x;
  for (long i = 0; i < turns; i++) {
#pragma GCC unroll 12
    for (int n = 0; n < 12; n++) sums[n] = _mm256_fmadd_ps(sums[n], x, y);
    asm volatile("" : "+x"(x), "+x"(y));
  }
  for (auto& sum : sums) x = _mm256_add_ps(x, sum);
  return x[0];
}
"""
"""Twelve chains of multiply-adds: more than wait for each other on any processor."""

Work = Callable[[], object]


def peak() -> tuple[Work, int]:
    """Return the loop in registers, and its operations."""
    compiler = shutil.which("c++")
    if compiler is None:
        raise SystemExit("this needs a C++ compiler (c++)")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "peak.cpp"), Path(folder, "peak.so")
        source.write_text(PEAK)
        flags = ["-O3", "-mavx2", "-mfma", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, source, "-o", library], check=True)
        function = ctypes.CDLL(str(library)).peak
    function.argtypes, function.restype = [ctypes.c_long], ctypes.c_float
    turns = PEAK_FLOPS // (12 * 8 * 2)
    return lambda: function(turns), turns * 12 * 8 * 2


def product(pool: KernelPool, kind: str, shape: tuple[int, int], num_rows: int) -> Work:
    """Return a product of the kernels."""
    dtype, stored = KINDS[kind]
    storage = Storage.of(stored, *shape)
    arena = WeightArena(storage.num_bytes)
    packed = pack(pool, arena, storage, [Part((torch.randn(shape) / 30).to(dtype))])
    x = torch.randn(num_rows, shape[1]).to(dtype)
    y = torch.empty(num_rows, storage.num_outputs)
    structure = packed.structure()
    prepared = torch.empty(max(1, num_rows * storage.prepared_row_bytes), dtype=torch.uint8)

    def run() -> object:
        # The matrices must stay alive: the structure holds addresses.
        pool.linear(
            TYPES[dtype],
            structure,
            pointer(x),
            num_rows,
            pointer(prepared),
            pointer(y),
            storage.num_outputs,
        )
        return packed

    return run


def of_torch(shape: tuple[int, int], num_rows: int) -> Work:
    """Return the same product in float32 by torch."""
    weight, x = torch.randn(shape), torch.randn(num_rows, shape[1])
    return lambda: torch.nn.functional.linear(x, weight)


def best_rates(works: dict[str, tuple[Work, int]], turns: int) -> dict[str, float]:
    """Return the best GFLOP/s of each."""
    best = dict.fromkeys(works, float("inf"))
    for turn in range(turns + 1):
        for name, (work, _) in works.items():
            began = time.thread_time()
            work()
            if turn:
                best[name] = min(best[name], time.thread_time() - began)
    return {name: works[name][1] / seconds / 1e9 for name, seconds in best.items()}


def main() -> None:
    """Print one line per shape and number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu-isa", default="avx2", choices=list(instruction_sets()))
    parser.add_argument("--rows", default="1,4,16,64,256,512", help="separated by commas")
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pool = KernelPool(1, arguments.cpu_isa)
    print(f"torch {torch.__version__}; {arguments.cpu_isa}; GFLOP/s (share of registers)")
    print("| shape | rows | registers | " + " | ".join([*KINDS, "torch, float32"]) + " |")
    print("| --- |" + " --- |" * (len(KINDS) + 3))
    for shape in SHAPES:
        for num_rows in map(int, arguments.rows.split(",")):
            flops = 2 * shape[0] * shape[1] * num_rows
            works = {kind: (product(pool, kind, shape, num_rows), flops) for kind in KINDS}
            works = {"peak": peak(), **works, "torch": (of_torch(shape, num_rows), flops)}
            rates = best_rates(works, arguments.turns)
            limit = rates.pop("peak")
            cells = [f"{rate:.0f} ({rate / limit:.2f})" for rate in rates.values()]
            name = " x ".join(map(str, shape))
            print(f"| {name} | {num_rows} | {limit:.0f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
