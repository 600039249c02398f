"""The benchmark of a frontend runs against its fake cell, and prints its tables."""

import subprocess
import sys

import pytest

from .conftest import BENCHMARKS


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        (["--repeats", "1"], "| gateway, gRPC |"),
        (["--traced", "1", "--rounds", "2", "--ratio", "1"], "batches sent"),
    ],
)
def test_a_small_run_prints_its_figures(flags, shown):
    small = ["--streams", "4", "--tokens", "8"]
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "gateway.py", *small, *flags],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert shown in done.stdout
