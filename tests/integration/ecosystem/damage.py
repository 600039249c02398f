"""Damages entries in real stores of other projects, and counts how many the connectors serve.

Every entry is written past the connector, under the right key; every tenth one is left whole and
must be served. Run by `make test-kv-ecosystem`:

    cd tests && python -m integration.ecosystem.damage --corruptions 10000
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from typing import Any

from pagewire_shared.errors import PagewireError
from pagewire_worker.connectors.envelope import layout_digest
from pagewire_worker.connectors.lmcache_link import LmcacheLink
from pagewire_worker.connectors.lmcache_wire import key_of
from pagewire_worker.connectors.making import make_connector
from pagewire_worker.connectors.transfer_config import ConnectorChoice
from pagewire_worker.offload.connector import KvConnector
from support.fakes.damaged_entries import CORRUPTIONS, LAYOUT, Block, random_block
from support.processes.outside_stores import LmcacheServer, MooncakeLender, MooncakeMaster

BATCH = 200
WHOLE_EVERY = 10
TIMES = 5
Entries = Sequence[tuple[bytes, bytearray]]


async def mooncake_writer(config: dict[str, Any]) -> Callable[[Entries], Any]:
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    status = store.setup(
        *("127.0.0.1", config["metadata_server"], 0, 16 << 20, "tcp", ""),
        config["master_server_address"],
    )
    assert status == 0, status

    async def write(entries: Entries) -> None:
        keys = [f"pagewire/{layout_digest(LAYOUT).hex()}/{name.hex()}" for name, _ in entries]
        for key, (_, data) in zip(keys, entries, strict=True):
            assert store.put(key, bytes(data)) == 0

    return write


async def lmcache_writer(server: LmcacheServer) -> Callable[[Entries], Any]:
    link = await LmcacheLink.connect("127.0.0.1", server.port)

    async def write(entries: Entries) -> None:
        keys = [key_of(layout_digest(LAYOUT), name) for name, _ in entries]
        for key, (_, data) in zip(keys, entries, strict=True):
            await link.put(key, memoryview(data))
        assert all([(await link.exist([key]))[0] for key in keys])

    return write


async def loaded(connector: KvConnector, block: Block) -> bytes | None:
    """Return what is served; asked again where the answer is late, on a busy machine."""
    for _ in range(TIMES):
        with suppress(PagewireError):
            return await _loaded(connector, block)
    raise AssertionError(f"no answer {TIMES} times in a row")


async def _loaded(connector: KvConnector, block: Block) -> bytes | None:
    async with aclosing(connector.get("", [block.name], 5.0)) as blocks:
        async for one in blocks:
            assert one.name == block.name
            return bytes(one.payload)
    return None


async def damage(
    connector: KvConnector, write: Callable[[Entries], Any], number: int, seed: int
) -> Counter[str]:
    """Return how often each outcome was seen: refused, served damaged, whole, whole lost."""
    chance, outcomes = random.Random(seed), Counter[str]()
    kinds = list(CORRUPTIONS.items())
    await connector.register(LAYOUT, [])
    done = 0
    while done < number:
        size = min(BATCH, number - done)
        blocks = [random_block(chance) for _ in range(size)]
        others = [*blocks[1:], random_block(chance)]
        entries: list[tuple[bytes, bytearray]] = []
        for at, (block, other) in enumerate(zip(blocks, others, strict=True)):
            entry = kinds[(done + at) % len(kinds)][1](block, other, chance)
            assert entry != block.entry(), kinds[(done + at) % len(kinds)][0]
            entries.append((block.name, entry))
        whole = [random_block(chance) for _ in range(size // WHOLE_EVERY)]
        await write([*entries, *((block.name, block.entry()) for block in whole)])
        for at, block in enumerate(blocks):
            payload = await loaded(connector, block)
            kind = kinds[(done + at) % len(kinds)][0]
            outcomes["refused" if payload is None else f"SERVED DAMAGED: {kind}"] += 1
        for block in whole:
            is_right = await loaded(connector, block) == block.payload
            outcomes["whole and served" if is_right else "WHOLE AND LOST"] += 1
        done += size
    await connector.close()
    return outcomes


async def run(stores: Sequence[str], number: int, seed: int) -> bool:
    is_right = True
    for name in stores:
        with ExitStack() as ends:
            folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
            if name == "mooncake":
                master = ends.enter_context(MooncakeMaster(folder))
                ends.enter_context(MooncakeLender(master))
                config = master.transfer_config["kv_connector_extra_config"]
                write = await mooncake_writer(config)
            else:
                server = ends.enter_context(LmcacheServer(folder))
                config = server.transfer_config["kv_connector_extra_config"]
                write = await lmcache_writer(server)
            connector = make_connector(ConnectorChoice(name, config))
            started = time.monotonic()
            outcomes = await damage(connector, write, number, seed)
            seconds = time.monotonic() - started
            said = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
            print(f"{name}: {said}; {seconds:.1f} s", flush=True)
            is_right &= set(outcomes) == {"refused", "whole and served"}
    return is_right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("mooncake", "lmcache"), action="append")
    parser.add_argument("--corruptions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    stores = given.store or ("mooncake", "lmcache")
    sys.exit(0 if asyncio.run(run(stores, given.corruptions, given.seed)) else 1)


if __name__ == "__main__":
    main()
