"""The memory tier against a dictionary, in any order of calls."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, Reservation
from pagewire_kvstore.tiers.memory import Pin
from pagewire_shared.errors import InvalidRequestError, OverloadedError
from pagewire_shared.kv.extents import GRANULE_BYTES
from support.processes.memory_blocks import NUM_GRANULES, QUOTAS, block, key_of, make


class MemoryTierMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pinned: set[BlockKey] = set()
        self.tier = make(pinned=self.pinned)
        self.blocks: dict[BlockKey, BlockRecord] = {}
        self.holds: list[tuple[Pin, BlockRecord]] = []
        self.reserved: list[tuple[Reservation, BlockRecord]] = []
        self.num_loads = 0

    @rule(
        number=st.integers(0, 20),
        num_bytes=st.integers(1, 5 * GRANULE_BYTES),
        tenant=st.sampled_from(["", "", "small"]),
    )
    def put(self, number: int, num_bytes: int, tenant: str) -> None:
        record = block(number, num_bytes, tenant)
        before = self.tier.keys()
        staying = self.pinned | {hold.record.key for hold, _ in self.holds}
        try:
            evicted = self.tier.put(record)
        except InvalidRequestError:
            assert tenant == "small"
            assert num_bytes > QUOTAS["small"]
            assert self.tier.keys() == before
            return
        except OverloadedError:
            assert staying or self.reserved, "refused though nothing had to stay"
            assert self.tier.keys() == before
            return
        assert not staying & set(evicted)
        assert set(evicted) <= set(before)
        for key in evicted:
            del self.blocks[key]
        self.blocks.setdefault(record.key, record)
        assert self.tier.keys()[-1] == record.key

    @rule(
        number=st.integers(0, 20),
        num_bytes=st.integers(1, 3 * GRANULE_BYTES),
        tenant=st.sampled_from(["", "small"]),
    )
    def reserve(self, number: int, num_bytes: int, tenant: str) -> None:
        record = block(number, num_bytes, tenant)
        before = self.tier.keys()
        try:
            reservation, evicted = self.tier.reserve(record.key, num_bytes, tenant)
        except OverloadedError:
            assert self.tier.keys() == before
            return
        for key in evicted:
            del self.blocks[key]
        # As a peer does that has mapped it.
        self.tier._arena.write(reservation.offset, record.payload)
        self.reserved.append((reservation, record))

    @precondition(lambda self: self.reserved)
    @rule(data=st.data(), is_kept=st.booleans())
    def end_reservation(self, data: st.DataObject, is_kept: bool) -> None:
        index = data.draw(st.integers(0, len(self.reserved) - 1))
        reservation, record = self.reserved.pop(index)
        if not is_kept:
            self.tier.abandon(reservation)
            return
        is_new = record.key not in self.blocks
        assert self.tier.commit(reservation, record.checksum) == is_new
        self.blocks.setdefault(record.key, record)
        assert self.tier.keys()[-1] == record.key

    @rule(number=st.integers(0, 20))
    def remove(self, number: int) -> None:
        known = self.blocks.pop(key_of(number), None)
        assert self.tier.remove(key_of(number)) == (known is not None)

    @rule(number=st.integers(0, 20))
    def hold(self, number: int) -> None:
        hold = self.tier.pin(key_of(number))
        self.num_loads += 1
        assert (hold is not None) == (key_of(number) in self.blocks)
        if hold is not None:
            self.holds.append((hold, self.blocks[key_of(number)]))

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.holds) - 1))
        self.tier.unpin(self.holds.pop(index)[0])

    @rule(number=st.integers(0, 20), is_pinned=st.booleans())
    def pin(self, number: int, is_pinned: bool) -> None:
        (self.pinned.add if is_pinned else self.pinned.discard)(key_of(number))

    @invariant()
    def same_blocks(self) -> None:
        held = self.tier.keys()
        assert set(held) == set(self.blocks)
        for key in held:
            self.num_loads += 1
            found = self.tier.get(key)
            assert found == self.blocks[key]
        for hold, record in self.holds:
            assert hold.record == record
        for reservation, record in self.reserved:
            assert reservation.view == record.payload
        records = [*self.blocks.values(), *(record for _, record in self.reserved)]
        small = [len(r.payload) for r in records if r.tenant == "small"]
        assert sum(small) <= QUOTAS["small"]
        stats = self.tier.stats()
        assert stats.num_hits + stats.num_misses == self.num_loads
        assert stats.used_bytes <= stats.capacity_bytes == NUM_GRANULES * GRANULE_BYTES

    def teardown(self) -> None:
        for hold, _ in self.holds:
            self.tier.unpin(hold)
        for reservation, _ in self.reserved:
            self.tier.abandon(reservation)
        held = self.tier.keys()
        for key in held:
            assert self.tier.remove(key)
        assert self.tier.stats().used_bytes == 0
        self.pinned.clear()
        assert self.tier.put(block(1, NUM_GRANULES * GRANULE_BYTES)) == []
        self.tier.close()


MemoryTierMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None
)
TestMemoryTier = MemoryTierMachine.TestCase
