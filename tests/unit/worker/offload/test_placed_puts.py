"""Blocks on several stores: where they go, and what happens when a store takes none."""

import pytest

from pagewire_shared.errors import DeadlineError, UnavailableError
from pagewire_shared.kv.copies import rank_stores
from pagewire_worker.offload import placed_puts
from pagewire_worker.offload.connector import BlockPlacement, OutgoingBlock
from pagewire_worker.offload.placed_puts import PlacedPuts

STORES = ("a:1", "b:1", "c:1")
ALL = frozenset(STORES)


class Link:
    """A store that keeps names; it fails while `error` is set, and has no room for `declined`."""

    def __init__(self):
        self.store_id = b"one"
        self.names = set()
        self.num_calls = 0
        self.is_connected = True
        self.error = None
        self.declined = set()

    async def put(self, blocks):
        self.num_calls += 1
        if self.error is not None:
            raise self.error
        self.names |= {block.name for block in blocks} - self.declined
        return frozenset(block.name for block in blocks) - self.declined

    async def exist(self, names):
        if self.error is not None:
            raise self.error
        assert len(names) <= placed_puts.EXIST_NAMES
        return frozenset(names) & self.names


@pytest.fixture
def links():
    return {address: Link() for address in STORES}


def block(number, num_copies=1, held_by=()):
    name = number.to_bytes(16, "little")
    return OutgoingBlock(
        name, None, memoryview(b"x"), BlockPlacement(number, num_copies, frozenset(held_by))
    )


def first(number, place=0):
    return rank_stores(number, ALL)[place]


async def test_each_block_goes_to_the_first_of_its_rank(links):
    blocks = [block(number) for number in range(200)]
    assert await PlacedPuts(links).put(blocks) == {one.name for one in blocks}
    for number, one in enumerate(blocks):
        assert [address for address in STORES if one.name in links[address].names] == [
            first(number)
        ]
    assert all(link.num_calls == 1 for link in links.values()), "one call a store"


async def test_copies_go_where_none_is(links):
    held = first(1)
    one = block(1, num_copies=1, held_by=(held,))
    assert await PlacedPuts(links).put([one]) == {one.name}
    assert one.name in links[first(1, 1)].names
    assert not links[held].names
    two = block(1, num_copies=2)
    await PlacedPuts(links).put([two])
    assert two.name in links[held].names


async def test_what_a_store_does_not_take_goes_to_the_next_one_at_once(links):
    links["a:1"].error = UnavailableError("gone")
    now = 100.0
    puts = PlacedPuts(links, lambda: now)
    before = puts.store_id
    blocks = [block(number) for number in range(50)]
    assert await puts.put(blocks) == {one.name for one in blocks}
    assert puts.store_id != before, "what it has is not known to be stored any more"
    for number in range(50):
        if first(number) == "a:1":
            assert block(number).name in links[first(number, 1)].names
    assert links["a:1"].num_calls == 1
    await puts.put(blocks)
    assert links["a:1"].num_calls == 1, "it is left alone for a while"
    now += placed_puts.FIRST_PAUSE_SECONDS
    links["a:1"].error = None
    await puts.put(blocks)
    assert links["a:1"].num_calls == 2
    assert puts.store_id == before


async def test_a_store_that_is_lost_makes_known_blocks_unknown(links):
    puts = PlacedPuts(links)
    before = puts.store_id
    links["b:1"].is_connected = False
    assert puts.store_id != before, "what only that store had may be put to another one"
    links["b:1"].store_id, links["b:1"].is_connected = b"two", True
    assert puts.store_id not in (before, b"")


async def test_no_store_is_an_error(links):
    for link in links.values():
        link.error = DeadlineError("slow")
    puts = PlacedPuts(links, lambda: 1.0)
    with pytest.raises(DeadlineError):
        await puts.put([block(1)])
    assert sum(link.num_calls for link in links.values()) == 3
    with pytest.raises(UnavailableError, match="no KV store"):
        await puts.put([block(1)])
    assert sum(link.num_calls for link in links.values()) == 3


async def test_a_quota_is_not_evaded_at_the_next_store(links):
    one = block(1)
    links[first(1)].declined = {one.name}
    assert await PlacedPuts(links).put([one]) == frozenset()
    assert sum(link.num_calls for link in links.values()) == 1


async def test_only_blocks_that_a_store_lacks_are_missing(links):
    links[first(1, 1)].names.add(block(1).name)
    links[first(3, 1)].error = UnavailableError("gone")
    asked = [block(number, held_by=(first(number),)) for number in (1, 2, 3)]
    missing = await PlacedPuts(links).missing([(one.name, one.placement) for one in asked])
    lacking = {one.name for one in asked if one.name not in links[first(1, 1)].names}
    assert missing == lacking | ({asked[0].name} if first(1, 1) == first(3, 1) else set())


async def test_many_names_are_asked_after_in_several_calls(links, monkeypatch):
    monkeypatch.setattr(placed_puts, "EXIST_NAMES", 4)
    asked = [block(number) for number in range(50)]
    missing = await PlacedPuts(links).missing([(one.name, one.placement) for one in asked])
    assert missing == {one.name for one in asked}
