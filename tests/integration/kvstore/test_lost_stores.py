"""Three KV stores with two copies, of which one is lost under load: killed, or hung. The long form
is `python -m support.traffic.lost_stores`."""

import asyncio
from pathlib import Path

from support.processes.kv_stores import listed_names
from support.traffic.lost_stores import LEAST, cell, copied, fall, shared_waves, stores

NUM_PREFIXES = 9
NUM_WAVES = 2


def test_a_lost_store_costs_no_hits(tiny_checkpoint: Path, tmp_path: Path) -> None:
    waves = shared_waves(tiny_checkpoint, NUM_PREFIXES)
    with (
        stores(tmp_path) as members,
        cell(tiny_checkpoint, members, kv_key_file=str(key_file(tmp_path))) as waves.cluster,
    ):
        for number, fault in enumerate(("killed", "hung")):
            before, during = asyncio.run(fall(waves, members, fault, number, NUM_WAVES))
            assert before.num_loaded > before.num_tokens / 2, "most of it comes from stores"
            assert during.cached >= LEAST * before.cached, fault
        # The store that was killed came back empty, and has copies again.
        asyncio.run(copied(waves, members, NUM_WAVES))
        assert asyncio.run(listed_names(members[0].store.address))


def key_file(folder: Path) -> Path:
    """Return a file with a key for seals."""
    path = folder / "kv.key"
    path.write_text("5a" * 32)
    return path
