"""Random histories of a whole cell, every read of simulated KV memory checked against the truth."""

import random

import pytest
from unit.scheduler.simulation import Simulation

CONFIGURATIONS = {
    "ample": {"num_blocks": 200},
    "tight": {},
    "tiny": {"num_blocks": 16, "max_num_batched_tokens": 7},
    "serial": {"steps_in_flight": 1, "num_blocks": 18},
    "deep": {"steps_in_flight": 4, "num_blocks": 18},
    "one_token": {"max_num_batched_tokens": 2, "num_blocks": 18},
}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", list(CONFIGURATIONS))
def test_every_stream_ends_with_its_tokens_and_nothing_is_left(name: str, seed: int) -> None:
    simulation = Simulation(random.Random(seed), worker_changes=CONFIGURATIONS[name])
    for _ in range(400):
        simulation.step()
    simulation.settle()
    assert sum(frontend.num_finished for frontend in simulation.frontends) > 5


@pytest.mark.parametrize("seed", range(10))
def test_failing_steps_cost_only_their_own(seed: int) -> None:
    simulation = Simulation(random.Random(seed), has_failures=True)
    for _ in range(500):
        simulation.step()
    simulation.settle()


@pytest.mark.parametrize("seed", range(4))
def test_without_prefix_cache_nothing_is_shared(seed: int) -> None:
    simulation = Simulation(random.Random(seed), is_caching=False)
    for _ in range(400):
        simulation.step()
    simulation.settle()
    assert all(not worker.names for worker in simulation.workers.values())
