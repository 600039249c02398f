"""One tenant's cached prefixes serve no other one, in any tier, across hand-offs."""

import asyncio
from pathlib import Path

import pytest

from support.security.cache_timing import NUM_PROMPT_TOKENS, Probe, auc, measure, timed_cell


@pytest.mark.long
def test_a_tenant_finds_nothing_of_another(tmp_path: Path) -> None:
    with timed_cell(tmp_path) as cell:
        found = asyncio.run(measure(cell.grpc_address, 100, seed=7))
    assert len(found.others) == 100
    assert not any(probe.num_cached for probe in found.others)
    # Its own it finds, so that the numbers above say something.
    for probe in found.own:
        assert probe.num_cached == (NUM_PROMPT_TOKENS - 16 if probe.was_asked else 0)


def test_the_best_threshold_in_either_direction() -> None:
    times = [(True, 1.0), (True, 2.0), (False, 3.0), (False, 4.0)]
    assert auc([Probe(was_asked, seconds, 0) for was_asked, seconds in times]) == 1.0
    assert auc([Probe(not was_asked, seconds, 0) for was_asked, seconds in times]) == 1.0
    mixed = [(True, 1.0), (False, 2.0), (False, 3.0), (True, 4.0)]
    assert auc([Probe(was_asked, seconds, 0) for was_asked, seconds in mixed]) == 0.5
