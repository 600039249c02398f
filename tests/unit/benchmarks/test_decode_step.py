"""The benchmark of a decode step runs: it reads parts of the kernels' backend."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.kernels.fused_kernels import needs_kernels

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@needs_kernels
@pytest.mark.long
def test_a_table_per_batch(tmp_path: Path) -> None:
    def run(script: str, *arguments: str) -> str:
        command = [sys.executable, str(BENCHMARKS / script), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    folder = str(tmp_path / "tiny")
    run("make_checkpoint.py", "--shape", "tiny", "--out", folder)
    out = run("cpu/decode_step.py", folder, "--batch", "1", "2", "--context", "32")
    assert out.count("| **step** |") == 2
    assert out.count("products: down") == 2
