"""Seals of blocks: what is put comes back, and nothing without a seal does."""

from contextlib import aclosing

import pytest

from pagewire_shared.errors import StartupError
from pagewire_worker.host.key_file import read_keys
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload.connector import BlockLayout, LoadedBlock, OutgoingBlock
from pagewire_worker.offload.sealed_connector import (
    INLINE_BYTES,
    NUM_SEAL_BYTES,
    SealedConnector,
)
from support.processes.forged_blocks import FORGERS, KEY, OLD_KEY, Recorder

NAME, OTHER = b"n" * 16, b"o" * 16


class Store(Recorder):
    async def get(self, address, names, timeout_seconds):
        for name in names:
            if name in self.blocks:
                yield LoadedBlock(name, self.blocks[name], "memory")


def layout_of(num_bytes):
    return BlockLayout(b"m" * 32, b"n" * 32, (CacheGroup(1, 16, num_bytes, "float32"),))


async def connected(store, *keys, num_bytes=64):
    connector = SealedConnector(store, keys)
    await connector.register(layout_of(num_bytes), [])
    return connector


async def got(connector, *names):
    async with aclosing(connector.get("", names, 5.0)) as blocks:
        return [bytes(block.payload) async for block in blocks]


@pytest.mark.parametrize("num_bytes", [64, INLINE_BYTES + 64])
async def test_what_is_put_comes_back_without_its_seal(num_bytes):
    store, data = Store(), bytes(range(64)) * (num_bytes // 64)
    connector = await connected(store, KEY, num_bytes=num_bytes)
    blocks = [OutgoingBlock(name, None, memoryview(data)) for name in (NAME, OTHER)]
    assert await connector.put(blocks) == {NAME, OTHER}
    assert {len(payload) for payload in store.blocks.values()} == {num_bytes + NUM_SEAL_BYTES}
    assert store.blocks[NAME] != store.blocks[OTHER], "the name is sealed, too"
    assert await got(connector, NAME, OTHER) == [data, data]
    store.blocks[NAME] = store.blocks[OTHER]
    assert await got(connector, NAME, OTHER) == [], "a load ends at the first one"
    assert await got(connector, OTHER) == [data]


async def test_a_new_key_seals_and_the_one_before_still_opens():
    store = Store()
    before = await connected(store, OLD_KEY)
    await before.put([OutgoingBlock(NAME, None, memoryview(bytes(64)))])
    both = await connected(store, KEY, OLD_KEY)
    assert await got(both, NAME) == [bytes(64)]
    await both.put([OutgoingBlock(OTHER, None, memoryview(bytes(64)))])
    assert await got(before, OTHER) == []
    assert await got(await connected(store, KEY), OTHER) == [bytes(64)]


def test_there_are_ten_kinds_of_forgeries():
    assert len(FORGERS) == 10


def test_keys_of_a_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"# of May\n{KEY.hex()}\n{OLD_KEY.hex()} # before\n")
    assert read_keys(str(file)) == (KEY, OLD_KEY)


@pytest.mark.parametrize(
    "text", ["", "# none", "ab", KEY.hex() + "0", f"{KEY.hex()}\n" * 5, "g" * 64]
)
def test_files_of_another_form_are_refused_without_showing_keys(tmp_path, text):
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(StartupError, match="64 hexadecimal digits") as caught:
        read_keys(str(file))
    assert KEY.hex() not in caught.value.message
    with pytest.raises(StartupError, match="cannot read"):
        read_keys(str(tmp_path / "missing"))
