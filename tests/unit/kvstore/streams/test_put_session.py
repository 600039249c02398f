"""Any order of announcements, chunks and publishing: what is visible is whole, nothing leaks."""

import asyncio
import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from pagewire_kvstore.blocks.tenants import Tenants
from pagewire_kvstore.blocks.types import BlockKey, StoreLayout
from pagewire_kvstore.streams.limits import ByteBudget
from pagewire_kvstore.streams.put_session import PutSession
from pagewire_shared.errors import InvalidRequestError, OverloadedError
from pagewire_shared.kv.checksum import crc32c
from pagewire_shared.kv.chunk_convert import KvPiece, checksum_of
from support.processes.store_server import name_of, payload_of

LAYOUT = StoreLayout(b"L" * 16, (6, 3))
BLOCK_BYTES = sum(LAYOUT.group_bytes)
MAX_BLOCKS = 1


class Store:
    """Takes blocks until it is full."""

    def __init__(self):
        self.blocks = {}

    def holds(self, key):
        return key in self.blocks

    def quota_fits(self, tenant, num_bytes):
        return True

    def put(self, records):
        if len(self.blocks) >= 2 * MAX_BLOCKS and records[0].key not in self.blocks:
            raise OverloadedError("full")
        self.blocks.update({record.key: record for record in records})


def piece(number, group, offset, size):
    whole = payload_of(number, LAYOUT.group_bytes[group], group)
    data = whole[offset : offset + size]
    is_last = offset + len(data) == len(whole)
    made = KvPiece(name=name_of(number), group=group, offset=offset, is_last=is_last, data=data)
    return KvPiece(
        name=name_of(number),
        group=group,
        offset=offset,
        is_last=is_last,
        data=data,
        checksum=checksum_of(made),
        payload_checksum=crc32c(whole) if is_last else None,
    )


NUMBERS = st.integers(0, 1)
# Group, offset, size.
PIECES = st.sampled_from([(0, 0, 6), (0, 0, 3), (0, 3, 3), (1, 0, 3)])
STEPS = st.one_of(
    st.tuples(st.just("announce"), st.lists(NUMBERS, min_size=1, unique=True)),
    st.tuples(st.just("chunk"), NUMBERS, PIECES),
    st.tuples(st.just("chunk"), NUMBERS, PIECES),
    st.tuples(st.just("publish"), st.lists(NUMBERS, min_size=1, unique=True)),
)


def take(session, step):
    """Do one step; the names that it published."""
    kind, *rest = step
    if kind == "announce":
        session.announce(LAYOUT, [name_of(number) for number in rest[0]], "")
    elif kind == "chunk":
        session.add(piece(rest[0], *rest[1]))
    else:
        return asyncio.run(session.publish([name_of(number) for number in rest[0]]))
    return []


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), STEPS), min_size=10, max_size=40))
def test_only_complete_and_published_blocks_are_visible(steps):
    store, budget = Store(), ByteBudget(2 * MAX_BLOCKS * BLOCK_BYTES)
    sessions = [PutSession(store, budget, Tenants(), window=2) for _ in range(2)]
    published = set()
    for index, step in steps:
        with contextlib.suppress(InvalidRequestError):
            published.update(take(sessions[index], step))
        assert 0 <= budget.used_bytes <= budget.max_bytes
        assert {key.name for key in store.blocks} == published
    for key, record in store.blocks.items():
        number = int.from_bytes(key.name, "big")
        assert bytes(record.payload) == payload_of(number, LAYOUT.group_bytes[key.group], key.group)
        assert record.checksum == crc32c(bytes(record.payload))
    for name in published:
        assert all(BlockKey(LAYOUT.layout_id, group, name) in store.blocks for group in (0, 1))
    for session in sessions:
        session.close()
        assert not session.is_waiting
    assert budget.used_bytes == 0
