"""A load from several stores: what happens when one of them fails in its middle."""

import asyncio
import time

import pytest

from pagewire_shared.errors import DeadlineError, UnavailableError
from pagewire_shared.kv.copies import BlockCopies
from pagewire_shared.kv.load import LoadOrder, LoadOutcome
from pagewire_worker.offload.connector import LoadedBlock
from pagewire_worker.offload.spread_reader import MAX_MISSES, SpreadReader

STORES = ("a", "b", "c")
NAMES = tuple(bytes([index]) * 16 for index in range(6))


class Stores:
    """A connector; each store has the blocks that `broken` does not name: None is missing, an
    error is raised, and "hang" never comes."""

    def __init__(self, **broken):
        self.broken = broken
        self.calls = []
        self.num_open = 0

    async def get(self, address, names, timeout_seconds):
        at = NAMES.index(names[0])
        self.calls.append((address, at, at + len(names)))
        assert timeout_seconds > 0
        self.num_open += 1
        try:
            for name in names:
                fault = self.broken.get(address, {}).get(NAMES.index(name), "fine")
                if fault is None:
                    return
                if isinstance(fault, Exception):
                    raise fault
                if fault == "hang":
                    await asyncio.Event().wait()
                yield LoadedBlock(name, address.encode() * 8, "memory")
        finally:
            self.num_open -= 1


async def read(stores, holders, seconds=20.0):
    """Return where the blocks came from, the parts, and the error if there was one."""
    order = LoadOrder(
        load_id=1,
        store=STORES[0],
        names=NAMES[: len(holders)],
        blocks=range(len(holders)),
        timeout_ms=int(1000 * seconds),
        copies=BlockCopies(STORES, tuple(holders)),
    )
    reader = SpreadReader(order, order.copies, stores)
    came, error = [], None
    try:
        async for block in reader.blocks():
            assert block.name == NAMES[len(came)]
            came.append(chr(block.payload[0]))
    except (UnavailableError, DeadlineError) as failure:
        error = failure
    assert stores.num_open == 0
    parts = {STORES[part.store]: part for part in reader.parts(LoadOutcome.LATE)}
    return "".join(came), parts, error


async def test_a_prefix_is_read_in_the_fewest_calls():
    stores = Stores()
    came, parts, error = await read(stores, [0b001, 0b011, 0b010, 0b110, 0b100, 0b100])
    assert (came, error) == ("aabbcc", None)
    assert stores.calls == [("a", 0, 2), ("b", 2, 4), ("c", 4, 6)]
    assert {part.outcome for part in parts.values()} == {LoadOutcome.COMPLETE}
    assert [part.num_bytes for part in parts.values()] == [16, 16, 16]


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (UnavailableError("gone"), LoadOutcome.FAILED),
        (DeadlineError("slow"), LoadOutcome.LATE),
        (None, LoadOutcome.MISSING),
    ],
)
async def test_another_copy_takes_over_in_mid_load(fault, outcome):
    stores = Stores(a={3: fault})
    came, parts, error = await read(stores, [0b011] * 6)
    assert (came, error) == ("aaabbb", None)
    assert (parts["a"].outcome, parts["b"].outcome) == (outcome, LoadOutcome.COMPLETE)
    assert parts["a"].missing == ((3,) if fault is None else ())
    assert stores.calls == [("a", 0, 6), ("b", 3, 6)]


async def test_a_store_that_hangs_costs_half_of_the_time():
    stores = Stores(a={1: "hang"}, b={2: "hang"})
    started = time.monotonic()
    came, parts, error = await read(stores, [0b111] * 6, seconds=0.8)
    assert (came, error) == ("abcccc", None)
    assert 0.5 < time.monotonic() - started < 0.79
    assert [parts[store].outcome.value for store in "abc"] == ["late", "late", "complete"]


async def test_the_last_copy_has_all_the_time_that_is_left():
    started = time.monotonic()
    came, parts, error = await read(Stores(b={0: "hang"}), [0b010] * 2, seconds=0.2)
    assert came == ""
    assert isinstance(error, DeadlineError)
    assert time.monotonic() - started > 0.19
    assert parts["b"].outcome is LoadOutcome.LATE


async def test_a_load_ends_where_no_store_has_the_block():
    stores = Stores(a={2: None}, b={2: None})
    came, parts, error = await read(stores, [0b011] * 4)
    assert (came, error) == ("aa", None)
    assert parts["a"].missing == parts["b"].missing == (2,)


async def test_it_fails_where_all_copies_fail():
    gone = UnavailableError("gone")
    came, _, error = await read(Stores(a={2: gone}, b={2: gone}), [0b011] * 4)
    assert (came, error) == ("aa", gone)


async def test_a_store_that_lacks_much_is_left_alone():
    stores = Stores(a=dict.fromkeys(range(6)))
    came, parts, _ = await read(stores, [0b01 if at % 2 else 0b11 for at in range(6)])
    assert came == "b", "only the other store has the second block, and it has lost it"
    assert len(parts["a"].missing) == MAX_MISSES
    stores = Stores(a={0: None, 2: None})
    holders = [0b011, 0b001, 0b011, 0b011, 0b011, 0b011]
    came, parts, _ = await read(stores, holders)
    assert (came, parts["a"].missing) == ("babbbb", (0, 2))
