"""The ledger against a list that is searched from the front."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pagewire_kvstore.blocks.types import BlockKey
from pagewire_kvstore.tiers.ledger import Ledger
from pagewire_shared.identity.ids import BlockName

CAPACITY_BYTES = 40
QUOTAS = {"small": 12, "none": 0, "large": 1000}


def key_of(number: int) -> BlockKey:
    return BlockKey(bytes(16), 0, BlockName(number.to_bytes(16, "little")))


def nothing_is_pinned(key: BlockKey) -> bool:
    return False


def choose(
    blocks: list[tuple[BlockKey, int, str]], excess: int, is_pinned: Callable[[BlockKey], bool]
) -> list[BlockKey] | None:
    """The least recently used that free `excess` bytes."""
    chosen: list[BlockKey] = []
    for key, num_bytes, _ in blocks:
        if excess <= 0:
            break
        if not is_pinned(key):
            chosen.append(key)
            excess -= num_bytes
    return None if excess > 0 else chosen


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(CAPACITY_BYTES, QUOTAS.get)
        self.blocks: list[tuple[BlockKey, int, str]] = []
        self.pinned: set[BlockKey] = set()

    def naive_room_for(self, key: BlockKey, num_bytes: int, tenant: str) -> list[BlockKey] | None:
        blocks = [block for block in self.blocks if block[0] != key]
        own = [block for block in blocks if block[2] == tenant]
        quota = QUOTAS.get(tenant, CAPACITY_BYTES)
        if num_bytes > min(quota, CAPACITY_BYTES):
            return None
        first: list[BlockKey] | None = []
        if tenant in QUOTAS:
            excess = sum(block[1] for block in own) + num_bytes - quota
            first = choose(own, excess, self.pinned.__contains__)
        if first is None:
            return None
        blocks = [block for block in blocks if block[0] not in first]
        excess = sum(block[1] for block in blocks) + num_bytes - CAPACITY_BYTES
        second = choose(blocks, excess, self.pinned.__contains__)
        return None if second is None else first + second

    @rule(
        number=st.integers(0, 15),
        num_bytes=st.integers(1, 13) | st.just(CAPACITY_BYTES + 1),
        tenant=st.sampled_from(["", "free", *QUOTAS]),
    )
    def put(self, number: int, num_bytes: int, tenant: str) -> None:
        key = key_of(number)
        victims = self.ledger.room_for(key, num_bytes, tenant, self.pinned.__contains__)
        assert victims == self.naive_room_for(key, num_bytes, tenant)
        if victims is None:
            return
        for victim in victims:
            assert self.ledger.remove(victim)
        self.ledger.add(key, num_bytes, tenant)
        self.blocks = [b for b in self.blocks if b[0] not in (*victims, key)]
        self.blocks.append((key, num_bytes, tenant))

    @rule(number=st.integers(0, 15))
    def remove(self, number: int) -> None:
        key = key_of(number)
        assert self.ledger.remove(key) == (key in [block[0] for block in self.blocks])
        self.blocks = [block for block in self.blocks if block[0] != key]

    @rule(number=st.integers(0, 15))
    def touch(self, number: int) -> None:
        self.ledger.touch(key_of(number))
        self.blocks.sort(key=lambda block: block[0] == key_of(number))

    @rule(number=st.integers(0, 15), is_pinned=st.booleans())
    def pin(self, number: int, is_pinned: bool) -> None:
        (self.pinned.add if is_pinned else self.pinned.discard)(key_of(number))

    @invariant()
    def same_blocks(self) -> None:
        ledger, blocks = self.ledger, self.blocks
        assert list(ledger.keys()) == [block[0] for block in blocks]
        assert len(ledger) == len(blocks)
        assert ledger.used_bytes == sum(block[1] for block in blocks) <= CAPACITY_BYTES
        for tenant in ("", "free", *QUOTAS):
            own = [block for block in blocks if block[2] == tenant]
            assert ledger.tenant_keys(tenant) == [block[0] for block in own]
            assert ledger.tenant_bytes(tenant) == sum(block[1] for block in own)
            assert ledger.tenant_bytes(tenant) <= ledger.bound_of(tenant)
        for number in range(16):
            assert (key_of(number) in ledger) == (key_of(number) in [b[0] for b in blocks])


LedgerMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestLedger = LedgerMachine.TestCase


def put(ledger: Ledger, number: int, num_bytes: int, tenant: str) -> list[BlockKey]:
    victims = ledger.room_for(key_of(number), num_bytes, tenant, nothing_is_pinned)
    assert victims is not None
    for victim in victims:
        ledger.remove(victim)
    ledger.add(key_of(number), num_bytes, tenant)
    return victims


def test_a_flood_takes_from_others_no_more_than_its_quota() -> None:
    quotas = {"flood": 30, "quiet": 90}
    ledger = Ledger(100, quotas.get)
    for number in range(9):
        put(ledger, number, 10, "quiet")
    for number in range(100, 1000):
        put(ledger, number, 10, "flood")
    assert ledger.tenant_bytes("flood") == 30
    assert ledger.tenant_keys("quiet") == [key_of(number) for number in range(2, 9)]


def test_a_tenant_whose_quota_shrank_pays_with_its_own_blocks() -> None:
    quotas = {"a": 50}
    ledger = Ledger(100, quotas.get)
    put(ledger, 99, 10, "b")
    for number in range(5):
        put(ledger, number, 10, "a")
    quotas["a"] = 20
    assert put(ledger, 5, 10, "a") == [key_of(number) for number in range(4)]
    assert key_of(99) in ledger


def test_pinned_blocks_count_towards_the_quota() -> None:
    ledger = Ledger(100, {"a": 20}.get)
    put(ledger, 0, 10, "a")
    put(ledger, 1, 10, "a")
    pinned = {key_of(0), key_of(1)}
    assert ledger.room_for(key_of(2), 1, "a", pinned.__contains__) is None
    pinned.remove(key_of(1))
    assert ledger.room_for(key_of(2), 1, "a", pinned.__contains__) == [key_of(1)]


def test_a_block_that_is_replaced_makes_room_for_itself() -> None:
    ledger = Ledger(30, {"a": 20}.get)
    put(ledger, 0, 10, "a")
    put(ledger, 1, 10, "a")
    put(ledger, 2, 10, "b")
    assert put(ledger, 0, 10, "a") == []
    assert ledger.tenant_keys("a") == [key_of(1), key_of(0)]
    assert put(ledger, 0, 10, "b") == []
    assert (ledger.tenant_bytes("a"), ledger.tenant_bytes("b")) == (10, 20)


def test_making_room_walks_over_pinned_blocks_and_no_others() -> None:
    ledger = Ledger(1000, lambda tenant: None)
    for number in range(1000):
        put(ledger, number, 1, "")
    pinned = {key_of(number) for number in range(7)}
    asked: list[BlockKey] = []

    def is_pinned(key: BlockKey) -> bool:
        asked.append(key)
        return key in pinned

    assert ledger.room_for(key_of(5000), 2, "", is_pinned) == [key_of(7), key_of(8)]
    assert len(asked) == 9


def test_tenants_without_blocks_leave_nothing_behind() -> None:
    ledger = Ledger(10, lambda tenant: None)
    for number in range(1000):
        put(ledger, number, 10, f"tenant {number}")
    assert len(ledger._keys_by_tenant) == len(ledger._bytes_by_tenant) == 1


def test_adding_without_room_is_a_bug_of_the_caller() -> None:
    ledger = Ledger(10, lambda tenant: None)
    ledger.add(key_of(0), 10, "")
    with pytest.raises(AssertionError, match="without room"):
        ledger.add(key_of(1), 1, "")
