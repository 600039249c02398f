"""Slopes of samples, and samples of a real process."""

import os

import pytest
from soak.samples import MIB, Sample, growth_per_hour, read_sample, shared_bytes, slope


def test_a_slope_is_that_of_the_line() -> None:
    assert slope([(at, 2.0 * at + 5.0) for at in range(10)]) == pytest.approx(2.0)
    assert slope([(0.0, 1.0), (1.0, 9.0)]) == 0.0
    assert slope([(1.0, 1.0)] * 5) == 0.0


def test_the_start_of_a_process_does_not_count() -> None:
    cold = [Sample(float(at), at * 1000 * MIB, 0, 1) for at in range(10)]
    warm = [Sample(float(at), 9000 * MIB + at * MIB, 10 + at, 4) for at in range(10, 40)]
    memory, files, threads = growth_per_hour(cold + warm)
    assert memory == pytest.approx(3600.0)
    assert files == pytest.approx(3600.0)
    assert threads == pytest.approx(0.0)


def test_a_process_is_read() -> None:
    found = read_sample(os.getpid(), 3.0)
    assert found is not None
    assert found.at == 3.0
    assert found.memory > MIB
    assert found.files > 2
    assert found.threads >= 1
    assert read_sample(2**22 + 1, 0.0) is None
    assert shared_bytes() >= 0
