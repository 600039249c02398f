"""An index of others equals the caches; `python -m support.kv_events` is the long form."""

from collections import Counter

from support.kv_events.__main__ import follow

NUM_EVENTS = 10_000


async def test_it_equals_the_caches_after_drops_replays_restarts_and_snapshots() -> None:
    counts: Counter[str] = Counter()
    for seed in (11, 12):
        found = await follow(NUM_EVENTS, seed, check_every=40)
        assert found["checks"] >= 5
        counts += found
    # What a subscriber meets depends on how fast it is: not each way with each seed.
    ways = ("lost", "replay", "snapshot", "publisher", "crowds", "subscriber restarts")
    for way in (*ways, "BlockRemoved", "AllBlocksCleared"):
        assert counts[way], f"{way} never happened: {counts}"
