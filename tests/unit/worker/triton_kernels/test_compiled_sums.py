"""What exact attention rests on, read from compiled code, which takes a compiler and no device:
chunks in tiles of 16 rows are summed as decodes are, operation for operation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagewire_worker.attention.triton import CHUNK_ROWS, EXACT_CHUNK_ROWS
from support import compiled_attention, compiled_sums

NUM_PRODUCTS_AND_REDUCTIONS = 4
"""Scores, their maxima, weights in all, weighted values."""


SHARED_MEMORY = 99 * 1024
"""What a program may take on every device since compute capability 8.0."""


@pytest.fixture
def printed_by(tmp_path):
    """Return a function that runs a module of the tests where kernels are not interpreted."""

    def run(module, *arguments):
        environ = {
            **os.environ,
            "TRITON_CACHE_DIR": str(tmp_path),
            "PYTHONPATH": ":".join(sys.path),
        }
        environ.pop("TRITON_INTERPRET", None)
        done = subprocess.run(
            [sys.executable, str(Path(module.__file__)), *map(str, arguments)],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize(
    ("capability", "dtype", "cache"),
    [(80, "fp16", "fp16"), (90, "bf16", "bf16"), (90, "bf16", "fp8e4nv"), (90, "fp32", "fp32")],
)
def test_exact_chunks_are_summed_as_decodes(capability, dtype, cache, printed_by):
    sums = printed_by(compiled_sums, capability, dtype, cache)
    exact = sums[f"chunk of {EXACT_CHUNK_ROWS}"]
    assert len(exact) == NUM_PRODUCTS_AND_REDUCTIONS
    assert exact == sums["decode"] == sums["decode of other tables"]
    # Larger tiles are not, so this sees a difference.
    assert sums[f"chunk of {CHUNK_ROWS}"] != exact


def test_tiles_of_wide_heads_fit_every_device(printed_by):
    # Its instructions take more than those of older devices.
    taken = printed_by(compiled_attention, 90)
    assert len(taken) == 6
    assert {name: size for name, size in taken.items() if size > SHARED_MEMORY} == {}
