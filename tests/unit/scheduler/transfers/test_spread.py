"""Loads from several stores: which stores have which blocks, what is copied, and who is blamed."""

import pytest
from unit.scheduler.loading_cell import PROMPT, STORE, LoadingCell

from pagewire_scheduler.convert.topology import cell_topology
from pagewire_scheduler.core.blocks.prefix_cache import NameChain
from pagewire_scheduler.core.blocks.stripes import stripe_of
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_shared.errors import WireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.copies import STRIPE_BLOCKS
from pagewire_shared.kv.load import LoadOutcome, StorePart

OTHER, THIRD = "store:2", "store:3"


def spread_cell(*, num_copies: int = 2, **changes: object) -> LoadingCell:
    settings = CoreSettings(generation=3, num_stores=3, num_copies=num_copies)
    cell = LoadingCell(**{"settings": settings, "places_copies": True, **changes})
    for store in (OTHER, THIRD):
        cell.core.stores.set_up(store, is_up=True)
    return cell


def stored(cell: LoadingCell, store: str, *numbers: int) -> None:
    names = cell.names(PROMPT)
    cell.core.stores.stored(store, [names[number] for number in numbers])


def test_a_prefix_comes_from_all_stores_that_have_a_part() -> None:
    cell = spread_cell()
    stored(cell, STORE, 0, 1)
    stored(cell, OTHER, 1, 2, 3)
    cell.submit(1, PROMPT)
    order = cell.order()
    assert order.names == tuple(cell.names(PROMPT))
    assert order.store == STORE
    assert order.copies is not None
    assert order.copies.stores == (STORE, OTHER)
    assert order.copies.holders == (0b01, 0b11, 0b10, 0b10)
    assert [load.shares for load in cell.worker.loads.under_way.values()] == [
        {STORE: (2000, 0), OTHER: (2000, 0)}
    ]
    cell.finish(order, parts=(StorePart(0, 2000, 0.01, LoadOutcome.COMPLETE),))
    assert cell.worker.loads.num_bytes == 0
    plan = cell.planned()
    assert (plan.starts, plan.num_new_tokens) == ([16], [1])


def test_only_blocks_with_too_few_copies_are_to_be_copied() -> None:
    cell = spread_cell()
    for store in (STORE, OTHER):
        stored(cell, store, 0, 1, 2, 3)
    cell.submit(1, PROMPT, tenant="me")
    order = cell.order()
    assert order.copies is not None
    assert (order.copies.stripes, order.copies.tenant) == ((), "")
    assert cell.core.counts.loads.num_uncopied == 0
    cell.finish(order)
    cell.core.stores.removed(OTHER, cell.names(PROMPT)[3:])
    cell.core.kv_caches.reset(None)
    cell.submit(2, PROMPT, tenant="me")
    order = next(order for _ in range(5) for order in cell.orders())
    assert order.copies is not None
    assert order.copies.holders == (0b11, 0b11, 0b11, 0b01)
    assert len(set(order.copies.stripes)) == 1, "one stripe"
    assert len(order.copies.stripes) == 4
    assert order.copies.tenant == "me"
    assert cell.core.counts.loads.num_uncopied == 1


def test_no_more_copies_are_wanted_than_stores_are_there() -> None:
    cell = spread_cell(num_copies=3)
    for store in (STORE, OTHER):
        stored(cell, store, 0, 1, 2, 3)
    cell.core.stores.set_up(THIRD, is_up=False)
    cell.submit(1, PROMPT)
    copies = cell.order().copies
    assert copies is not None
    assert copies.stripes == ()


@pytest.mark.parametrize("changes", [{"places_copies": False}, {"down": (OTHER, THIRD)}])
def test_a_load_of_one_store_says_nothing_of_copies(changes: dict[str, object]) -> None:
    down = changes.pop("down", ())
    cell = spread_cell(**changes)
    for store in down:  # type: ignore[attr-defined]
        cell.core.stores.set_up(store, is_up=False)
    stored(cell, STORE, 0, 1, 2)
    stored(cell, OTHER, 3)
    cell.submit(1, PROMPT)
    order = cell.order()
    assert (order.store, len(order.names), order.copies) == (STORE, 3, None)


def test_blocks_have_stripes_only_where_there_are_several_stores() -> None:
    for cell, has_stripes in ((spread_cell(), True), (LoadingCell(places_copies=True), False)):
        cell.submit(1, PROMPT)
        plan = cell.planned()
        names = cell.names(PROMPT)
        stripe = int.from_bytes(names[3][:4], "little")
        assert plan.named_stripes == ([stripe] * 4 if has_stripes else [])


def test_a_store_is_not_asked_again_for_what_it_did_not_have() -> None:
    cell = spread_cell()
    for store in (STORE, OTHER):
        stored(cell, store, 0, 1, 2, 3)
    cell.submit(1, PROMPT)
    order = cell.order()
    parts = (
        StorePart(0, 1000, 0.01, LoadOutcome.MISSING, (1,)),
        StorePart(1, 3000, 0.01, LoadOutcome.COMPLETE),
    )
    cell.finish(order, parts=parts)
    names = cell.names(PROMPT)
    assert not cell.core.stores.has(STORE, names[1])
    assert cell.core.stores.has(OTHER, names[1])
    assert cell.core.stores.has(STORE, names[0])


def test_a_store_that_fails_is_left_out_and_the_others_are_not_blamed() -> None:
    cell = spread_cell()
    for store in (STORE, OTHER):
        stored(cell, store, 0, 1, 2, 3)
    failed = (
        StorePart(0, 0, 0.01, LoadOutcome.FAILED),
        StorePart(1, 4000, 0.01, LoadOutcome.COMPLETE),
    )
    for number in range(2):
        cell.core.kv_caches.reset(None)
        cell.submit(number, PROMPT)
        order = next(order for _ in range(5) for order in cell.orders())
        assert order.copies is not None
        assert order.copies.stores == (STORE, OTHER)
        cell.finish(order, parts=failed)
    cell.core.kv_caches.reset(None)
    cell.submit(9, PROMPT)
    order = next(order for _ in range(5) for order in cell.orders())
    assert order.copies is not None
    assert (order.store, order.copies.stores) == (OTHER, (OTHER,))
    assert order.copies.stripes, "a copy is missing as long as the store fails"


@pytest.mark.parametrize(
    "part",
    [
        StorePart(2, 0, 0.0, LoadOutcome.COMPLETE),
        StorePart(0, -1, 0.0, LoadOutcome.COMPLETE),
        StorePart(0, 0, float("inf"), LoadOutcome.COMPLETE),
        StorePart(0, 0, 0.0, LoadOutcome.COMPLETE, (4,)),
    ],
)
def test_parts_that_cannot_be_are_refused(part: StorePart) -> None:
    cell = spread_cell()
    for store in (STORE, OTHER):
        stored(cell, store, 0, 1, 2, 3)
    cell.submit(1, PROMPT)
    order = cell.order()
    for parts in ((part,), (StorePart(1, 0, 0.0, LoadOutcome.COMPLETE),) * 2):
        with pytest.raises(WireError):
            cell.finish(order, parts=parts)


def test_an_answer_without_parts_was_ordered_of_one_store() -> None:
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    with pytest.raises(WireError):
        cell.finish(cell.order(), parts=(StorePart(0, 0, 0.0, LoadOutcome.COMPLETE),))


def test_a_stripe_is_named_by_the_last_block_that_the_prompt_has_in_it() -> None:
    tokens = list(range(3 * STRIPE_BLOCKS))
    num_prompt = STRIPE_BLOCKS + 5
    chain = NameChain(BlockName(bytes(16)), 1)

    def at(index: int) -> int:
        return int.from_bytes(chain.name(index, tokens)[:4], "little")

    stripes = [stripe_of(chain, index, tokens, num_prompt) for index in range(len(tokens))]
    assert stripes[:STRIPE_BLOCKS] == [at(STRIPE_BLOCKS - 1)] * STRIPE_BLOCKS
    assert stripes[STRIPE_BLOCKS : 2 * STRIPE_BLOCKS] == [at(num_prompt - 1)] * STRIPE_BLOCKS
    assert stripes[2 * STRIPE_BLOCKS :] == [at(2 * STRIPE_BLOCKS)] * STRIPE_BLOCKS


def test_prompts_that_differ_behind_a_common_beginning_have_other_stripes() -> None:
    common = list(range(40))
    stripes = set()
    for number in range(50):
        tokens = [*common, *([number] * 20)]
        chain = NameChain(BlockName(bytes(16)), 1)
        stripes.add(stripe_of(chain, 50, tokens, len(tokens)))
    assert len(stripes) == 50


def test_the_topology_shows_the_stores_and_what_they_have() -> None:
    cell = spread_cell()
    stored(cell, OTHER, 0, 1, 2)
    cell.core.stores.set_up(THIRD, is_up=False)
    topology = cell.core.topology()
    assert topology.num_copies == 2
    assert [(one.address, one.is_up, one.num_blocks) for one in topology.stores] == [
        (STORE, True, 0),
        (OTHER, True, 3),
        (THIRD, False, 0),
    ]
    message = cell_topology(topology, 3, {})
    assert message.kvstore_copies == 2
    assert [(one.address, one.is_up, one.num_blocks) for one in message.stores] == [
        (STORE, True, 0),
        (OTHER, True, 3),
        (THIRD, False, 0),
    ]
