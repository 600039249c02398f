"""Blocks of a store that is not watched: a load asks for them, and a miss costs one question."""

import pytest
from unit.scheduler.cell import finished
from unit.scheduler.loading_cell import PROMPT, STORE, LoadingCell

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as pb
from pagewire_scheduler.convert.worker import MAX_STORE_NAME, worker_info
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_scheduler.core.transfers.outside_stores import MISSING_SECONDS, OutsideStores
from pagewire_shared.errors import PeerRefusedError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.load import LoadOutcome

OUTSIDE = "mooncake:master:50051"
OTHER = [*range(30, 47)]


def outside_cell(**changes: object) -> LoadingCell:
    return LoadingCell(is_up=False, outside_store=OUTSIDE, **changes)


def test_a_fresh_cell_asks_for_blocks_that_it_knows_nothing_of() -> None:
    cell = outside_cell()
    cell.submit(1, PROMPT)
    order = cell.order()
    assert (order.store, order.names) == (OUTSIDE, tuple(cell.names(PROMPT)))
    cell.finish(order, tiers=(("mooncake", 4),))
    (end,) = finished(cell.run())
    assert end.cached_tokens == (("mooncake", 16),)


def test_the_part_that_is_missing_is_computed_and_not_asked_for_again_at_once() -> None:
    cell = outside_cell()
    cell.submit(1, PROMPT)
    order = cell.order()
    cell.finish(order, 2, LoadOutcome.MISSING, tiers=(("mooncake", 2),))
    (end,) = finished(cell.run())
    assert end.cached_tokens == (("mooncake", 8),)

    cell = outside_cell()
    cell.submit(1, PROMPT)
    cell.finish(cell.order(), 0, LoadOutcome.MISSING)
    cell.core.kv_caches.reset(None)
    cell.submit(2, PROMPT)
    assert cell.orders() == [], "the first block was missing a moment ago"
    cell.run()
    cell.core.kv_caches.reset(None)
    cell.now += MISSING_SECONDS + 0.1
    cell.submit(3, PROMPT)
    assert cell.order().store == OUTSIDE, "another cell may have put it by now"


def test_a_store_that_fails_is_not_asked_for_a_while() -> None:
    cell = outside_cell(num_blocks=64)
    cell.submit(1, PROMPT)
    cell.submit(2, OTHER)
    for order in cell.orders():
        cell.finish(order, 0, LoadOutcome.LATE)
    cell.submit(3, range(50, 67))
    assert cell.orders() == [], "two questions in a row had no answer"


def test_such_a_worker_loads_from_no_watched_store_and_others_not_from_its_own() -> None:
    cell = LoadingCell(outside_store=OUTSIDE)
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    assert cell.order().store == OUTSIDE
    watched = LoadingCell()
    watched.store(PROMPT)
    watched.submit(1, PROMPT)
    assert watched.order().store == STORE
    watched.submit(2, OTHER)
    assert watched.orders() == []


def test_an_operator_may_forbid_loads() -> None:
    cell = outside_cell()
    cell.core.kv_caches = SchedulerCore(
        CoreSettings(generation=1, asks_outside_stores=False)
    ).kv_caches
    cell.core.kv_caches._workers = cell.core.workers
    cell.submit(1, PROMPT)
    assert cell.orders() == []


def test_names_kept_as_missing_are_bounded() -> None:
    stores = OutsideStores(lambda: 1.0, max_missing=10)
    names = [BlockName(number.to_bytes(16, "little")) for number in range(30)]
    stores.note_missing(OUTSIDE, names)
    known = [stores.is_missing(OUTSIDE, name) for name in names]
    assert known == [False] * 20 + [True] * 10
    assert not stores.is_missing("another", names[-1])
    index = stores.index(OUTSIDE)
    assert index.longest_runs([names[0], names[1], names[29], names[2]]) == [(OUTSIDE, 2)]
    assert index.longest_runs(names[29:]) == []


def test_a_hello_names_the_store_in_a_short_line() -> None:
    group = layout_pb2.CacheGroup(kind=layout_pb2.CACHE_KIND_FULL, block_size=4)
    layout = layout_pb2.KvLayout(groups=[group])
    assert worker_info(pb.WorkerHello(layout=layout)).outside_store == ""
    hello = pb.WorkerHello(layout=layout, outside_store=OUTSIDE)
    assert worker_info(hello).outside_store == OUTSIDE
    for wrong in ("a\nb", "ä", "x" * (MAX_STORE_NAME + 1)):
        with pytest.raises(PeerRefusedError) as caught:
            worker_info(pb.WorkerHello(layout=layout, outside_store=wrong))
        assert caught.value.field == "outside_store"
