"""What is copied out of the pool when, with an outlet that the test holds in its hands."""

import numpy as np
import pytest
import torch

from pagewire_shared.steps.plan import NO_SLOT, StepPlan
from pagewire_worker.kv.block_memory import CacheBlocks
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.offload import block_offloader, metrics
from pagewire_worker.offload.block_offloader import NUM_STAGING, BlockOffloader, KnownNames
from support.cells.worker_driver import request

NUM_BLOCKS = 64


class Outlet:
    """Takes batches and settles none by itself."""

    def __init__(self):
        self.is_open = True
        self.batches = []

    def send(self, batch):
        self.batches.append(batch)

    def sent(self):
        return [entry.block for batch in self.batches for entry in batch.entries]


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def cache():
    shape = CacheShape(num_layers=2, num_kv_heads=1, head_dim=4)
    made = KvCache(
        shape=shape,
        num_blocks=NUM_BLOCKS,
        block_size=4,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )
    for layer in made.layers:
        layer.key.copy_(torch.arange(NUM_BLOCKS).view(-1, 1, 1, 1).expand_as(layer.key))
        layer.value.copy_(-layer.key)
    return made


@pytest.fixture
def outlet():
    return Outlet()


@pytest.fixture
def make(cache, outlet):
    def build(**settings):
        made = BlockOffloader(CacheBlocks(cache), **settings)
        made.connect(outlet)
        return made

    return build


@pytest.fixture
def two_rows(monkeypatch, cache):
    """Buffers of two blocks."""
    monkeypatch.setattr(block_offloader, "STAGING_BYTES", 2 * cache.bytes_per_block)


def name_of(block):
    return bytes([block]) * 16


def plan(blocks=(), slots=None, **fields):
    named = [0] * len(blocks) if slots is None else slots
    return StepPlan(
        generation=1,
        incarnation=1,
        step_id=1,
        named_blocks=list(blocks),
        names=[name_of(block) for block in blocks],
        named_slots=named,
        **fields,
    )


def name(offloader, blocks, slots=None, tenants=None):
    """Say that `blocks` of `slots` got their names; slots 0 to 3 have tenants."""
    tenants = {0: None, 1: "a", 2: "b", 3: None} if tenants is None else tenants
    requests = [request(slot, tenant=tenant or "") for slot, tenant in tenants.items()]
    offloader.follow(plan(new_sequences=requests))
    offloader.named(plan(blocks, slots))


def dropped(reason):
    return metrics.DROPPED_BLOCKS.labels(reason)._value.get()


def drain(offloader, is_idle=True):
    while offloader.turn(is_idle):
        pass


def test_named_blocks_go_out_with_content_and_tenant(make, outlet, cache):
    offloader = make()
    name(offloader, [5, 9, 3], slots=[1, 0, 2])
    drain(offloader)
    (batch,) = outlet.batches
    assert [(e.block, e.name, e.tenant) for e in batch.entries] == [
        (5, name_of(5), "a"),
        (9, name_of(9), None),
        (3, name_of(3), "b"),
    ]
    for block, out in zip((5, 9, 3), batch.blocks(), strict=True):
        assert out.name == name_of(block)
        values = np.frombuffer(out.payload, dtype=np.float32)
        assert set(values.tolist()) == {float(block), -float(block)}


def test_without_slots_or_with_no_slot_nothing_goes_out(make, outlet):
    offloader = make()
    name(offloader, [5, 6], slots=[])
    name(offloader, [7], slots=[NO_SLOT])
    # A slot that no request was seen in.
    name(offloader, [8], slots=[33])
    drain(offloader)
    assert outlet.batches == []


def test_forks_have_the_tenant_of_their_source(make, outlet):
    offloader = make()
    name(offloader, [])
    offloader.follow(plan(fork_slots=[7, 8], fork_sources=[2, 1], fork_choices=[1, 2]))
    offloader.named(plan([4, 5], [7, 8]))
    drain(offloader)
    assert [entry.tenant for entry in outlet.batches[0].entries] == ["b", "a"]


def test_what_waits_for_a_buffer_stays_and_goes_oldest_first(make, outlet, two_rows):
    offloader = make()
    blocks = list(range(2 * NUM_STAGING + 3))
    name(offloader, blocks)
    drain(offloader)
    assert outlet.sent() == blocks[: 2 * NUM_STAGING]
    for batch in list(outlet.batches[:2]):
        offloader.finish_put(batch, frozenset(), False)
    drain(offloader)
    assert outlet.sent() == blocks


def test_a_closed_outlet_gets_nothing_and_nothing_is_lost(make, outlet):
    offloader = make()
    outlet.is_open = False
    name(offloader, [1, 2])
    drain(offloader)
    assert outlet.batches == []
    outlet.is_open = True
    drain(offloader)
    assert outlet.sent() == [1, 2]


def test_a_busy_thread_copies_out_only_what_is_worth_it(make, outlet):
    offloader = make()
    name(offloader, [1, 2])
    assert not offloader.turn(False)
    assert outlet.batches == []
    name(offloader, range(3, 10))
    offloader.turn(False)
    assert outlet.sent() == list(range(1, 10))


def test_blocks_about_to_be_written_are_flushed_once(make, outlet, cache):
    offloader = make()
    before = metrics.FLUSHED_BLOCKS._value.get()
    name(offloader, [1, 2, 3])
    offloader.overwrite([2, 40])
    for layer in cache.layers:
        layer.key[2] = layer.value[2] = 99.0
    drain(offloader)
    assert outlet.sent() == [2, 1, 3]
    values = np.frombuffer(outlet.batches[0].blocks()[0].payload, dtype=np.float32)
    assert set(values.tolist()) == {2.0, -2.0}
    assert metrics.FLUSHED_BLOCKS._value.get() == before + 1
    offloader.overwrite([2, 1, 3])
    assert len(outlet.batches) == 2


@pytest.mark.parametrize(("is_open", "reason"), [(True, "queue_full"), (False, "store_down")])
def test_without_room_a_written_block_is_dropped_and_counted(
    make, outlet, two_rows, is_open, reason
):
    offloader = make()
    name(offloader, range(2 * NUM_STAGING))
    drain(offloader)
    name(offloader, [40, 41])
    outlet.is_open = is_open
    before = dropped(reason)
    offloader.overwrite([40, 41])
    assert dropped(reason) == before + 2
    outlet.is_open = True
    for batch in list(outlet.batches):
        offloader.finish_put(batch, None, False)
    drain(offloader)
    assert outlet.sent() == list(range(2 * NUM_STAGING))


def test_a_flush_takes_one_buffer_at_most(make, outlet, two_rows):
    offloader = make()
    name(offloader, range(5))
    before = dropped("queue_full")
    offloader.overwrite(range(5))
    assert outlet.sent() == [0, 1]
    assert dropped("queue_full") == before + 3


def test_a_renamed_block_goes_out_under_its_new_name(make, outlet):
    offloader = make()
    name(offloader, [1])
    renamed = StepPlan(
        generation=1,
        incarnation=1,
        step_id=2,
        named_blocks=[1],
        names=[b"n" * 16],
        named_slots=[0],
    )
    offloader.named(renamed)
    drain(offloader)
    assert [entry.name for entry in outlet.batches[0].entries] == [b"n" * 16]


def test_stored_names_are_not_sent_again_for_a_while(make, outlet):
    clock = Clock()
    offloader = make(clock=clock)
    name(offloader, [1, 2])
    drain(offloader)
    offloader.finish_put(outlet.batches[0], frozenset([name_of(1)]), False)
    name(offloader, [1, 2])
    drain(offloader)
    assert outlet.sent() == [1, 2], "2 had no room a moment ago"
    clock.now += 61.0
    name(offloader, [1])
    drain(offloader)
    assert outlet.sent() == [1, 2, 1]


def test_what_had_no_room_is_offered_again_soon(make, outlet):
    clock = Clock()
    offloader = make(clock=clock)
    name(offloader, [1, 2])
    drain(offloader)
    offloader.finish_put(outlet.batches[0], frozenset([name_of(1)]), False)
    for seconds, expected in (
        (0.0, []),
        (4.0, []),
        (2.0, [name_of(2)]),
        (60.0, [name_of(1), name_of(2)]),
    ):
        clock.now += seconds
        del outlet.batches[1:]
        name(offloader, [1, 2])
        drain(offloader)
        assert [e.name for batch in outlet.batches[1:] for e in batch.entries] == expected


def test_a_new_store_is_sent_everything(make, outlet):
    offloader = make()
    name(offloader, [1, 2])
    drain(offloader)
    offloader.finish_put(outlet.batches[0], frozenset([name_of(1), name_of(2)]), False)
    name(offloader, [3])
    drain(offloader)
    offloader.finish_put(outlet.batches[1], frozenset(), True)
    name(offloader, [1, 2])
    drain(offloader)
    assert outlet.sent() == [1, 2, 3, 1, 2]


def test_writeback_sends_what_has_left_or_goes(make, outlet):
    offloader = make(is_writeback=True)
    name(offloader, [1, 2, 3, 4], slots=[0, 1, 1, 2])
    drain(offloader)
    assert outlet.batches == []
    offloader.leave([1])
    drain(offloader)
    assert outlet.sent() == [2, 3]
    offloader.overwrite([4])
    assert outlet.sent() == [2, 3, 4]
    offloader.drop_slots()
    drain(offloader)
    assert outlet.sent() == [2, 3, 4, 1]


def test_known_names_are_bounded():
    known = KnownNames(max_names=3)
    known.add([b"a", b"b", b"c"], 10.0)
    known.add([b"a", b"d"], 11.0)
    assert [known.holds(key, 2.0) for key in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    assert len(known) == 3
    assert not known.holds(b"c", 10.5)
    assert known.holds(b"a", 10.5)
