"""Random histories of a cell whose workers exchange their weights: every answer is that of the
naive model with one version, and a name says what the version has that it was made with."""

import pytest
from simulation import update_histories as histories
from simulation.coverage import Coverage

from support.products import cases_of

pytestmark = pytest.mark.usefixtures("quiet_logs")

NUM_SEEDS = 4
NUM_EVENTS = 200


def run(seed: int, coverage: Coverage, num_events: int = NUM_EVENTS) -> None:
    events = histories.events_of(seed, num_events)
    failure, _ = histories.run(histories.configuration_of(seed), events, coverage)
    assert failure is None, f"seed {seed}, event {failure.event_number}: {failure.detail}"


def test_answers_are_of_one_version() -> None:
    coverage = Coverage()
    for seed in range(NUM_SEEDS):
        run(seed, coverage)
    assert coverage.events["update_weights"] > NUM_SEEDS
    assert coverage.facts["failed with weights_changed"]
    assert coverage.facts["weights exchanged"]


@pytest.mark.long
@pytest.mark.parametrize("chunk", cases_of(range(10), range(4)))
def test_many_histories(chunk: int) -> None:
    coverage = Coverage()
    for seed in range(1000 + chunk * 20, 1020 + chunk * 20):
        run(seed, coverage)
