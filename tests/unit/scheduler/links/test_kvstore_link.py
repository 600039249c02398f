"""Whatever a store sends is taken or refused as a breach of the contract, and nothing else."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pagewire_protos.kvstore.v1 import kv_store_pb2 as pb
from pagewire_scheduler.links.kvstore_link import KvStoreLink
from pagewire_shared.errors import WireError
from pagewire_shared.identity.ids import BlockName


class Observer:
    """Checks what it is told."""

    def note_stored(self, store: str, names: Sequence[BlockName]) -> None:
        assert all(len(name) == 16 for name in names)

    note_removed = note_stored

    def note_cleared(self, store: str) -> None:
        pass

    def set_store(self, store: str, *, is_up: bool) -> None:
        pass


def damaged(data: bytes, at: int, byte: int) -> bytes:
    index = at % len(data)
    return data[:index] + bytes([byte]) + data[index + 1 :]


NAMES = st.binary(max_size=40)
EVENTS = st.one_of(
    st.builds(pb.BlocksStored, names=NAMES).map(lambda event: {"stored": event}),
    st.builds(pb.BlocksRemoved, names=NAMES).map(lambda event: {"removed": event}),
    st.just({"cleared": pb.BlocksCleared()}),
)
MESSAGES = st.builds(
    lambda sequence, event: pb.WatchBlocksResponse(sequence=sequence, **event).SerializeToString(),
    st.integers(1, 2**64 - 1) | st.integers(1, 4),
    EVENTS,
)
DAMAGED = st.builds(damaged, MESSAGES, st.integers(0, 100), st.integers(0, 255))


@given(st.lists(st.one_of(MESSAGES, DAMAGED, st.binary(max_size=40)), max_size=6))
def test_every_message_is_taken_or_refused(messages: list[bytes]) -> None:
    async def take_all() -> None:
        link = KvStoreLink("127.0.0.1:1", Observer())
        link._position.open(b"s" * 16)
        for message in messages:
            try:
                await link._take(message)
            except WireError:
                link._forget()

    asyncio.run(take_all())
