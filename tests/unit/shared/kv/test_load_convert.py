"""Orders to load blocks, and their answers, are read as they were sent."""

import pytest

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import WireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import pack_names, pack_u32
from pagewire_shared.kv.copies import BlockCopies
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome, StorePart, WorkerSource
from pagewire_shared.kv.load_convert import (
    load_from_message,
    load_to_message,
    loaded_from_message,
    loaded_to_message,
)
from pagewire_shared.kv.transport import KvTransport

NAMES = [BlockName(bytes([byte]) * 16) for byte in range(2)]
FIELDS = {"load_id": 2**40, "names": NAMES, "blocks": [7, 8], "timeout_ms": 1500}
ON_WIRE = {**FIELDS, "names": pack_names(NAMES), "blocks": pack_u32([7, 8])}


def test_an_order_for_a_store():
    order = LoadOrder(store="unix:/store", **FIELDS)
    expected = wire.LoadBlocks(kvstore_address="unix:/store", **ON_WIRE)
    assert load_to_message(order).SerializeToString() == expected.SerializeToString()
    assert load_from_message(expected) == order
    assert order.timeout_seconds == 1.5


def test_an_order_for_a_worker_leaves_out_the_name_of_the_pair():
    source = WorkerSource("host:1", b"w" * 16)
    message = load_to_message(LoadOrder(store="pair", worker=source, **FIELDS))
    worker = wire.WorkerSource(address="host:1", worker_id=b"w" * 16)
    assert message == wire.LoadBlocks(worker=worker, **ON_WIRE)
    assert load_from_message(message) == LoadOrder(store="", worker=source, **FIELDS)


def test_an_order_with_copies():
    for copies in (
        BlockCopies(("a:1", "b:1"), (0b01, 0b11)),
        BlockCopies(("a:1", "b:1"), (0b10, 0b11), (2**32 - 1, 7), "tenant"),
    ):
        order = LoadOrder(store="a:1", copies=copies, **FIELDS)
        assert load_from_message(load_to_message(order)) == order


@pytest.mark.parametrize(
    ("stores", "holders", "stripes", "field"),
    [
        ([], [1, 1], [], "copies.stores"),
        (["a:1", "a:1"], [1, 1], [], "copies.stores"),
        ([f"a:{number}" for number in range(33)], [1, 1], [], "copies.stores"),
        (["a:1"], [1], [], "copies.holders"),
        (["a:1"], [1, 0], [], "copies.holders"),
        (["a:1"], [1, 2], [], "copies.holders"),
        (["a:1"], [1, 1], [7], "copies.holders"),
    ],
)
def test_copies_that_contradict_themselves_are_refused(stores, holders, stripes, field):
    copies = wire.BlockCopies(stores=stores, holders=pack_u32(holders), stripes=pack_u32(stripes))
    with pytest.raises(WireError) as caught:
        load_from_message(wire.LoadBlocks(copies=copies, **ON_WIRE))
    assert caught.value.field == field


def test_an_answer_with_parts():
    parts = (
        StorePart(0, 640, 0.25, LoadOutcome.LATE, (1, 4)),
        StorePart(2, 0, 0.0, LoadOutcome.FAILED),
    )
    answer = LoadAnswer(1, 5, LoadOutcome.MISSING, 640, 0.25, parts=parts)
    assert loaded_from_message(loaded_to_message(answer)) == answer


def test_an_order_without_time_is_refused():
    with pytest.raises(WireError) as caught:
        load_from_message(wire.LoadBlocks(load_id=1))
    assert caught.value.field == "timeout_ms"


@pytest.mark.parametrize("outcome", LoadOutcome)
def test_an_answer(outcome):
    store = LoadAnswer(1, 5, outcome, 640, 0.25, (("memory", 2), ("disk", 3)))
    worker = LoadAnswer(1, 5, outcome, 640, 0.25, (), KvTransport.GRPC, 0.125)
    for answer in (store, worker):
        assert loaded_from_message(loaded_to_message(answer)) == answer


def test_an_unknown_outcome_is_a_failure():
    assert loaded_from_message(wire.BlocksLoaded(outcome=9)).outcome is LoadOutcome.FAILED
