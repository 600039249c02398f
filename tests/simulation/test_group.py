"""The short form of a search for histories in which a group of frontends loses a stream."""

import pytest
from simulation.coverage import Coverage
from simulation.group import histories
from simulation.group.world import GROUP_INVARIANTS

pytestmark = pytest.mark.usefixtures("quiet_logs")

NUM_CHUNKS = 3
SEEDS_PER_CHUNK = 10


@pytest.mark.parametrize("chunk", range(NUM_CHUNKS))
def test_no_stream_is_lost_doubled_or_changed(chunk: int) -> None:
    coverage, failures = Coverage(), []
    first = chunk * SEEDS_PER_CHUNK
    for seed in range(first, first + SEEDS_PER_CHUNK):
        events = histories.events_of(seed, histories.MAX_EVENTS)
        failure, _ = histories.run(histories.configuration_of(seed), events, coverage)
        failures += [f"seed {seed}: {failure.detail}"] if failure is not None else []
    assert failures == []
    assert all(coverage.invariants[name] for name in GROUP_INVARIANTS), coverage.invariants
    assert all(coverage.events[kind] for kind in histories.WEIGHTS)
    assert coverage.facts["frontends killed"] >= SEEDS_PER_CHUNK / 2


def test_a_history_of_a_group_can_be_told_again() -> None:
    events = histories.events_of(3, histories.MAX_EVENTS)
    configuration = histories.configuration_of(3)
    runs = [histories.run(configuration, events, Coverage()) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0][0] is None
