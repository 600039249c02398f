"""Shared memory of compiled attention, without a device.

Run as a program, where kernels are not interpreted: `python compiled_attention.py CAPABILITY`
prints an object from type and head size to the bytes that decodes and chunks take.
"""

import json
import sys

import torch

from pagewire_worker.attention.triton import CHUNK_ROWS
from pagewire_worker.triton_kernels.chunk_attention import _attend_tiles
from pagewire_worker.triton_kernels.decode_attention import LEAST_ROWS, _decode_splits
from pagewire_worker.triton_kernels.paged_sequences import Cut, fitting_rows
from support.compiled_sums import compiled

HEADS = [("bf16", torch.bfloat16, 128), ("fp32", torch.float32, 128), ("fp32", torch.float32, 256)]


def main():
    """Print the bytes of each kernel."""
    capability, found = int(sys.argv[1]), {}
    for name, dtype, head_dim in HEADS:
        query = torch.empty((1, 1, head_dim), dtype=dtype)
        sizes = {"WIDTH": head_dim, "TILE": Cut().fitting(query).tile}
        rows = {_decode_splits: LEAST_ROWS, _attend_tiles: fitting_rows(CHUNK_ROWS, query)}
        for kernel, num_rows in rows.items():
            made = compiled(kernel, capability, name, name, num_rows, **sizes)
            found[f"{name} {head_dim} {kernel.__name__}"] = made.metadata.shared
    print(json.dumps(found))


if __name__ == "__main__":
    main()
