"""Products with codes of 4 bits on a CPU: values that are computed, against values looked up.

    python benchmarks/cpu/code_products.py

One thread, time of the thread, pairs in turn. Both matrices have the same size; the values of one
are whole numbers in a row, which instruction sets may compute, and those of the other are not.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import TYPES, KernelPool, instruction_sets, pointer
from pagewire_worker.cpu_kernels.packing import PackedWeights, Part, Storage, WeightArena, pack

SHAPE = (9728, 896)
FORMS = {
    "groups of 128": (128, False),
    "with zero points": (128, True),
    "groups of 32": (32, False),
}
ROWS = (1, 4, 16, 256)
CALLS = {1: 8, 4: 8}
"""Products of a turn by rows; 2 for others."""

NOT_IN_A_ROW = 1.0078125


def coded(group: int, has_offsets: bool) -> CodedMatrix:
    """Return random codes with scales in float16."""
    groups = (SHAPE[0], SHAPE[1] // group)
    return CodedMatrix(
        codes=torch.randint(0, 16, SHAPE, dtype=torch.uint8),
        table=torch.arange(16.0) - 8,
        scales=torch.rand(groups).half(),
        offsets=torch.rand(groups).half() if has_offsets else None,
    )


def packed(pool: KernelPool, matrix: CodedMatrix) -> PackedWeights:
    """Return the matrix as the kernels read it."""
    parts = [Part(matrix)]
    storage = Storage.of_parts(abi.BFLOAT16, *SHAPE, parts)
    return pack(pool, WeightArena(storage.num_bytes), storage, parts)


def product(pool: KernelPool, weights: PackedWeights, rows: int) -> Callable[[], None]:
    """Return a call that multiplies `rows` rows in bfloat16."""
    storage, structure = weights.storage, weights.structure()
    x = torch.randn(rows, storage.num_inputs).bfloat16()
    y = torch.empty(rows, storage.num_outputs)
    memory = torch.empty(max(1, rows * storage.prepared_row_bytes), dtype=torch.uint8)

    def call() -> None:
        arguments = pointer(x), rows, pointer(memory), pointer(y), storage.num_outputs
        pool.linear(TYPES[x.dtype], structure, *arguments)

    return call


def seconds(call: Callable[[], None], count: int) -> float:
    """Return the CPU time of a call."""
    began = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - began) / count


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu-isa", choices=instruction_sets(), help="the newest by default")
    parser.add_argument("--turns", type=int, default=12)
    options = parser.parse_args()
    torch.manual_seed(0)
    pool = KernelPool(1, options.cpu_isa)
    print(f"{pool.instruction_set}, {SHAPE[0]} x {SHAPE[1]}, looked up / in a row, ms in a row")
    for name, (group, has_offsets) in FORMS.items():
        in_row = coded(group, has_offsets)
        assert in_row.table is not None
        looked_up = replace(in_row, table=in_row.table * NOT_IN_A_ROW)
        pair = [packed(pool, one) for one in (looked_up, in_row)]
        for rows in ROWS:
            calls, count = [product(pool, one, rows) for one in pair], CALLS.get(rows, 2)
            turns = [[seconds(one, count) for one in calls] for _ in range(options.turns)]
            ratios = sorted(before / now for before, now in turns)
            best = min(now for _, now in turns) * 1e3
            middle, low, high = ratios[len(ratios) // 2], ratios[1], ratios[-2]
            print(f"{name}, {rows} rows: {middle:.2f} ({low:.2f}..{high:.2f}), {best:.2f} ms")


if __name__ == "__main__":
    main()
