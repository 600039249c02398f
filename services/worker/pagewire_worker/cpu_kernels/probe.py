"""Hashes the result of a small product on this processor, for the numerics fingerprint.

The instruction set alone is not enough. VDPBF16PS adds two products to a sum, and processors that
have it may round between the two in different ways. Workers with the same kernels would then differ
in their last bits.
"""

import hashlib

import torch
from torch import Tensor

from pagewire_worker.cpu_kernels.library import TYPES, KernelPool, pointer
from pagewire_worker.cpu_kernels.packing import Part, Storage, WeightArena, pack

_ROWS, _OUTPUTS, _INPUTS = 5, 64, 256
_GOLDEN = 0.6180339887498949


def numerics_probe(pool: KernelPool, dtype: torch.dtype) -> str:
    """Return a hash of the bits of silu(gate) * up for fixed numbers of type `dtype`."""
    weight = _numbers(_OUTPUTS, _INPUTS).to(dtype)
    storage = Storage.of(TYPES[dtype], _OUTPUTS, _INPUTS)
    linear = pack(pool, WeightArena(storage.num_bytes), storage, [Part(weight)])
    x = _numbers(_ROWS, _INPUTS).to(dtype)
    sums = torch.empty(_ROWS, _OUTPUTS, dtype=torch.float32)
    gated = torch.empty(_ROWS, _OUTPUTS // 2, dtype=dtype)
    structure, kind = linear.structure(), TYPES[dtype]
    pool.linear(kind, structure, pointer(x), _ROWS, None, pointer(sums), _OUTPUTS)
    pool.gate_up(kind, structure, pointer(x), _ROWS, None, pointer(gated))
    both = (sums, gated.float())
    return hashlib.sha256(b"".join(one.numpy().tobytes() for one in both)).hexdigest()[:16]


def _numbers(num_rows: int, num_columns: int) -> Tensor:
    """Return numbers between -1 and 1 that are equal on every machine, float64."""
    counts = torch.arange(1, num_rows * num_columns + 1, dtype=torch.float64)
    return (counts * _GOLDEN % 1.0 * 2.0 - 1.0).view(num_rows, num_columns)
