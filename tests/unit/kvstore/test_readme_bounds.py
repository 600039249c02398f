"""The README of the store says what the code does."""

import re
from dataclasses import fields
from pathlib import Path

from pagewire_kvstore import store_process
from pagewire_kvstore.adapters.blob_keeper import MAX_BLOBS
from pagewire_kvstore.adapters.blob_medium import PAGE_BYTES
from pagewire_kvstore.config import KvStoreConfig
from pagewire_kvstore.store import create as tiers
from pagewire_kvstore.streams import convert, put_session
from pagewire_kvstore.streams.credits import MAX_CREDITS
from pagewire_kvstore.streams.limits import StoreStreamLimits
from pagewire_kvstore.tiers.disk import tier as disk_threads
from pagewire_kvstore.tiers.redis import tier as redis_tier
from pagewire_kvstore.tiers.redis import values as redis_values
from pagewire_shared.adapters.adapter_config import MAX_CONFIG_BYTES
from pagewire_shared.adapters.tensor_header import MAX_WEIGHT_BYTES
from pagewire_shared.kv.chunk_convert import MAX_DATA_BYTES
from pagewire_shared.process.settings import ProcessConfig, flag_of

README = Path(__file__).parents[3] / "services" / "kvstore" / "README.md"
MIB = 1024 * 1024
NUMBERS = {
    "streams at a time": [
        StoreStreamLimits.__dataclass_fields__[name].default
        for name in ("max_puts", "max_gets", "max_watches")
    ],
    "adapters at a time": [
        StoreStreamLimits.__dataclass_fields__[name].default
        for name in ("max_adapter_puts", "max_adapter_gets")
    ],
    "adapters": [PAGE_BYTES, MAX_BLOBS, MAX_CONFIG_BYTES, MAX_WEIGHT_BYTES],
    "a block": [
        convert.MAX_BLOCK_BYTES // (1024 * MIB),
        convert.MAX_GROUPS,
        redis_tier.MAX_RECORD_BYTES // MIB,
    ],
    "blocks of a Put that are announced and not yet published": [put_session.MAX_WANTED],
    "names in one message": [convert.MAX_NAMES],
    "a chunk": [MAX_DATA_BYTES // MIB],
    "credit that a reader may grant ahead": [MAX_CREDITS],
    "events that a watcher can catch up on": [store_process._MAX_EVENTS],
    "pins": [
        store_process._MAX_LEASES,
        int(store_process._MAX_LEASE_SECONDS),
        store_process._MAX_PINNED,
    ],
    "bytes that wait to be written": [tiers._MAX_QUEUED_BYTES // MIB],
    "a read from disk, a call of Redis": [
        int(disk_threads.READ_SECONDS),
        int(redis_values.CALL_SECONDS),
    ],
}


def rows() -> dict[str, str]:
    lines = [line for line in README.read_text().splitlines() if line.startswith("| ")]
    cells = (line.strip("|").split("|", 1) for line in lines)
    return {name.strip(): rest for name, rest in cells}


def test_numbers_of_the_readme_match_the_code() -> None:
    told = rows()
    assert {name: [int(n) for n in re.findall(r"\d+", told[name])] for name in NUMBERS} == NUMBERS


def test_every_flag_is_in_the_readme() -> None:
    own = {item.name for item in fields(KvStoreConfig)} - {i.name for i in fields(ProcessConfig)}
    told = " ".join(rows())
    assert [name for name in own if f"`{flag_of(name)}" not in told] == []
