"""The measurement of a worker's host runs on the executor as it is."""

import pytest
import worker_host


@pytest.mark.parametrize("kind", worker_host.KINDS)
def test_a_step_without_a_model_is_timed(kind, monkeypatch):
    for name in ("NUM_STEPS", "NUM_WARM_UPS", "REPEATS"):
        monkeypatch.setattr(worker_host, name, 2)
    ticks = iter(range(100))
    found = worker_host.microseconds(3, worker_host.KINDS[kind], lambda: next(ticks))
    assert found == [1 / 2 * 1e6] * 2
