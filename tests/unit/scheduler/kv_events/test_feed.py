"""The feed: names and ranks of workers, queues without room, and what is learnt again."""

from dataclasses import replace

import pytest
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.blocks.block_pool import BlockState
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex
from pagewire_scheduler.kv_events import feed as feed_module
from pagewire_scheduler.kv_events import store_feed
from pagewire_scheduler.kv_events.events_config import KvEventsConfig
from pagewire_scheduler.kv_events.feed import KvEventFeed, worker_name
from pagewire_scheduler.kv_events.store_feed import StoreFeed, store_instance
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.ids import BlockName
from support.kv_events.busy_cell import BusyCell

CONFIG = KvEventsConfig(enable_kv_cache_events=True, max_queue_size=3, stores=False)


class Recorder:
    """In place of the publisher: nothing takes the batches."""

    has_failed = False

    def __init__(self, config, queue):
        self.queue = queue

    def close(self):
        self.queue.release()


@pytest.fixture
async def cell(monkeypatch):
    monkeypatch.setattr(feed_module, "KvEventPublisher", Recorder)
    made = BusyCell(CONFIG, seed=5, num_workers=2)
    yield made
    made.feed.close()


def taken(cell):
    batches = []
    while (batch := cell.feed._queue.take()) is not None:
        batches.append(batch)
    return batches


def kinds(batch):
    return [change.kind.value for change in batch.changes]


def test_a_worker_is_named_by_its_address_or_its_id():
    info = worker_info(1, kv_endpoint="10.0.0.1:8300")
    assert worker_name(info) == "10.0.0.1:8300"
    assert worker_name(replace(info, kv_endpoint="unix:/tmp/a.sock")) == "01010101"
    assert worker_name(replace(info, kv_endpoint="")) == "01010101"


async def test_workers_have_ranks_and_topics_of_their_own(cell):
    for _ in range(4):
        cell.turn()
    batches = taken(cell)
    topics = {batch.instance.rank: batch.instance.topic for batch in batches}
    assert topics == {0: b"kv@10.0.0.1:8300@tiny", 1: b"kv@10.0.0.2:8300@tiny"}


async def test_without_room_batches_are_dropped_and_then_all_is_said(cell):
    while not cell.feed._num_dropped:
        cell.turn()
    assert len(taken(cell)) == 3
    num_dropped = cell.feed._num_dropped
    cell.feed.flush()
    batches = taken(cell)
    assert batches[0].num_dropped == num_dropped
    assert all(batch.num_dropped == 0 for batch in batches[1:])
    behind = [batch for batch in batches if batch.contents is not None]
    assert behind
    for batch in behind:
        worker_id = bytes([batch.instance.rank + 1]) * 16
        cache = cell.core.workers[worker_id].pool.cache
        assert batch.contents.keys() == cache.blocks.keys()
    # The workers catch up one after the other.
    assert [batch.is_lagging for batch in batches] == [True] * (len(batches) - 1) + [False]


async def test_a_lost_worker_is_cleared_even_when_there_is_no_room_at_first(cell):
    for _ in range(6):
        cell.turn()
    worker_id = cell.infos[1].worker_id
    assert cell.feed._queue.put(taken(cell)[-1])
    while len(cell.feed._queue._batches) < 3:
        assert cell.feed._queue.put(cell.feed._queue._batches[0][0])
    cell.core.detach_worker(worker_id)
    cell.feed.flush()
    taken(cell)
    cell.feed.flush()
    cleared = [batch for batch in taken(cell) if "cleared" in kinds(batch)]
    assert [batch.instance.rank for batch in cleared] == [0]


async def test_a_worker_that_attaches_again_keeps_its_rank_and_its_tokens(cell):
    for _ in range(6):
        cell.turn()
        taken(cell)
    info, held = cell.infos[1], cell.held(1)
    assert held
    before = dict(cell.core.workers[info.worker_id].pool.changes.contents)
    cell.core.detach_worker(info.worker_id)
    cell.attach(1, replace(info, held=held))
    cell.feed.flush()
    changes = cell.core.workers[info.worker_id].pool.changes
    assert {name: changes.contents[name] for name, _ in held} == {n: before[n] for n, _ in held}
    batches = [batch for batch in taken(cell) if batch.instance.rank == 0]
    assert kinds(batches[0]) == ["cleared", *["stored"] * len(held)]
    stored = [change for batch in batches for change in batch.changes if change.content]
    assert len(stored) == len(held)
    assert all(change.content.tokens for change in stored)


async def test_tokens_of_a_block_are_learnt_when_a_prompt_uses_it(cell):
    for _ in range(6):
        cell.turn()
        taken(cell)
    info = cell.infos[1]
    pool = cell.core.workers[info.worker_id].pool
    held = tuple((n, b) for n, b in pool.cache.items() if pool.state(b) is BlockState.VALID)
    cell.feed.close()
    cell.start({1: replace(info, held=held)})
    changes = cell.core.workers[info.worker_id].pool.changes
    assert changes.num_unknown == len(held)
    for _ in range(30):
        cell.turn()
        taken(cell)
    known = [name for name, _ in held if name in changes.contents]
    assert changes.num_unknown == sum(not changes.contents[name].tokens for name in known)
    assert changes.num_unknown < len(held)


def names(numbers):
    return [BlockName(bytes([number % 256]) + number.to_bytes(15, "big")) for number in numbers]


def run_store(index, feed, found, ready=lambda: True):
    """Flush until nothing changes; return what a subscriber has that had `found`."""

    def put(instance, changes):
        if not ready():
            return False
        for change in changes:
            if change.content is None:
                found.clear()
            elif change.kind.value == "stored":
                assert change.content.name not in found
                found.add(change.content.name)
            else:
                found.remove(change.content.name)
        return True

    for _ in range(300):
        feed.flush(put)
    return found


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(store_feed, "MAX_BATCH_NAMES", 64)
    index = RemoteIndex()
    feed = StoreFeed(index, lambda address: store_instance(0, "kv@{worker}@{model}", address))
    index.stored("s:1", names(range(1000)))
    feed.begin()
    return index, feed


def test_what_a_store_has_already_is_listed_shard_by_shard(store):
    index, feed = store
    once = iter([True] + [False] * 10_000)
    first = run_store(index, feed, set(), lambda: next(once))
    assert len(first) == 64
    # Names of a shard that was listed, and of one that was not.
    feed.removed("s:1", names([1, 255]))
    index.removed("s:1", names([1, 255]))
    index.stored("s:1", names([1024, 1279]))
    feed.stored("s:1", names([1024, 1279]))
    there = {*range(1000), 1024, 1279} - {1, 255}
    assert run_store(index, feed, first) == set(names(there))


def test_a_store_with_too_much_that_waits_is_said_anew(store, monkeypatch):
    index, feed = store
    found = run_store(index, feed, set())
    assert found == set(names(range(1000)))
    monkeypatch.setattr(store_feed, "MAX_WAITING_NAMES", 100)
    more = names(range(1000, 1200))
    index.stored("s:1", more)
    feed.stored("s:1", more)
    assert len(feed._stores["s:1"].waiting) == 1
    assert run_store(index, feed, found) == set(names(range(1200)))
    index.cleared("s:1")
    feed.cleared("s:1")
    assert run_store(index, feed, found) == set()


def test_without_a_publisher_nothing_is_kept():
    feed = KvEventFeed.__new__(KvEventFeed)
    feed.publisher = None
    assert feed._put(store_instance(0, "t", "a"), [])


async def test_a_publisher_that_failed_is_replaced_and_all_is_said_again(cell, monkeypatch):
    for _ in range(4):
        cell.turn()
    failed = cell.feed.publisher
    failed.has_failed = True
    cell.feed.flush()
    assert cell.feed.publisher is not failed
    batches = taken(cell)
    assert {batch.instance.rank for batch in batches} == {0, 1}
    for batch in batches:
        worker_id = bytes([batch.instance.rank + 1]) * 16
        cache = cell.core.workers[worker_id].pool.cache
        assert kinds(batch)[0] == "cleared"
        assert {change.content.name for change in batch.changes[1:]} == set(cache.blocks)
    # One that fails at once is not started again and again.
    again = cell.feed.publisher
    again.has_failed = True
    cell.feed.flush()
    assert cell.feed.publisher is again
    # What cannot be opened is tried again.
    refusals = []

    def refuse(config, queue):
        refusals.append(queue)
        raise StartupError("taken", field="kv_events_config")

    monkeypatch.setattr(feed_module, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(feed_module, "KvEventPublisher", refuse)
    cell.feed._again_at = 0.0
    cell.feed.flush()
    cell.feed.flush()
    assert len(refusals) == 2
    monkeypatch.setattr(feed_module, "KvEventPublisher", Recorder)
    cell.feed.flush()
    assert not cell.feed.publisher.has_failed
    assert taken(cell)
