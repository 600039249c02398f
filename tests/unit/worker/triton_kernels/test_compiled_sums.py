"""What exact attention rests on, read from compiled code, which takes a compiler and no device:
chunks in tiles of 16 rows are summed as decodes are, operation for operation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagewire_worker.attention.triton import CHUNK_ROWS, EXACT_CHUNK_ROWS
from support import compiled_sums

NUM_PRODUCTS_AND_REDUCTIONS = 4
"""Scores, their maxima, weights in all, weighted values."""


@pytest.fixture
def sums_of(tmp_path):
    """Return a function that compiles kernels in a process that does not interpret them."""

    def run(capability, dtype, cache):
        environ = {
            **os.environ,
            "TRITON_CACHE_DIR": str(tmp_path),
            "PYTHONPATH": ":".join(sys.path),
        }
        environ.pop("TRITON_INTERPRET", None)
        program = Path(compiled_sums.__file__)
        done = subprocess.run(
            [sys.executable, program, str(capability), dtype, cache],
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
def test_exact_chunks_are_summed_as_decodes(capability, dtype, cache, sums_of):
    sums = sums_of(capability, dtype, cache)
    exact = sums[f"chunk of {EXACT_CHUNK_ROWS}"]
    assert len(exact) == NUM_PRODUCTS_AND_REDUCTIONS
    assert exact == sums["decode"] == sums["decode of other tables"]
    # Larger tiles are not, so this sees a difference.
    assert sums[f"chunk of {CHUNK_ROWS}"] != exact
