"""The products of a layer on a CPU by each instruction set of the kernels, and by torch (oneDNN).

    python benchmarks/cpu/instruction_sets.py

One thread, time of the thread, the four products of a layer of Qwen2.5-0.5B in bfloat16. All take
turns, and the ratios are medians over the turns. Torch packs its weights, and uses AMX where there
is any.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pagewire_worker.cpu_kernels.library import TYPES, KernelPool, instruction_sets, pointer
from pagewire_worker.cpu_kernels.packing import Part, Storage, WeightArena, pack
from pagewire_worker.host.cpu import has_amx
from pagewire_worker.layers.linear import PackedLinear

sys.path.append(str(Path(__file__).resolve().parents[1]))
from parts.machine import describe

SHAPES = ((1152, 896), (896, 896), (9728, 896), (896, 4864))
ROWS = (1, 8, 64, 512)
REPEATS = 9
DTYPE = torch.bfloat16

Layer = Callable[[int], None]
"""Multiplies so many rows with all matrices of the layer."""


def kernels(name: str, weights: list[torch.Tensor]) -> Layer:
    """Return the products of the kernels for one instruction set."""
    pool, kind = KernelPool(1, name), TYPES[DTYPE]
    packed = []
    for weight in weights:
        storage = Storage.of(kind, *weight.shape)
        packed.append(pack(pool, WeightArena(storage.num_bytes), storage, [Part(weight)]))
    y = torch.empty(max(ROWS) * max(shape[0] for shape in SHAPES))
    x = torch.randn(max(ROWS) * max(shape[1] for shape in SHAPES)).to(DTYPE)

    def run(num_rows: int) -> None:
        for one in packed:
            outputs = one.storage.num_outputs
            pool.linear(kind, one.structure(), pointer(x), num_rows, None, pointer(y), outputs)

    return run


def of_torch(weights: list[torch.Tensor]) -> Layer:
    """Return the products of torch."""
    linears = [PackedLinear(weight, None) for weight in weights]
    x = {size: torch.randn(max(ROWS), size).to(DTYPE) for _, size in SHAPES}

    def run(num_rows: int) -> None:
        for linear, (_, size) in zip(linears, SHAPES, strict=True):
            linear(x[size][:num_rows])

    return run


def main() -> None:
    """Print one line per number of rows."""
    torch.set_num_threads(1)
    weights = [(torch.randn(shape) / 30).to(DTYPE) for shape in SHAPES]
    layers = {name: kernels(name, weights) for name in instruction_sets()}
    layers["torch"] = of_torch(weights)
    print(f"{describe()}; AMX: {'yes' if has_amx() else 'no'}")
    print("| rows | " + " | ".join(f"{name}, ms (times as fast)" for name in layers) + " |")
    print("| --- |" + " --- |" * len(layers))
    with torch.inference_mode():
        for num_rows in ROWS:
            print(line(layers, num_rows))


def line(layers: dict[str, Layer], num_rows: int) -> str:
    """Return the medians for so many rows, and ratios to the first."""
    times: dict[str, list[float]] = {name: [] for name in layers}
    for turn in range(REPEATS + 1):
        for name, layer in layers.items():
            began = time.thread_time()
            layer(num_rows)
            if turn:
                times[name].append(time.thread_time() - began)
    first = next(iter(times.values()))
    cells = [
        f"{statistics.median(own) * 1e3:.2f} "
        f"({statistics.median(a / b for a, b in zip(first, own, strict=True)):.2f})"
        for own in times.values()
    ]
    return f"| {num_rows} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
