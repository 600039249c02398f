"""An index of others equals the caches; `python -m support.kv_events` is the long form."""

import pytest

from support.kv_events.__main__ import follow

NUM_EVENTS = 10_000


@pytest.mark.parametrize("seed", [11, 12])
async def test_it_equals_the_caches_after_drops_replays_restarts_and_snapshots(seed: int) -> None:
    counts = await follow(NUM_EVENTS, seed, check_every=40)
    assert counts["checks"] >= 5
    ways = ("lost", "replay", "snapshot", "publisher", "crowds", "subscriber restarts")
    for way in (*ways, "BlockRemoved", "AllBlocksCleared"):
        assert counts[way], f"{way} never happened: {counts}"
