"""What a receiver makes of a holder that breaks the contract, stops, or is another one."""

import asyncio

import pytest

from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arena import boot_id
from pagewire_shared.kv.arrays import pack_names
from pagewire_shared.kv.load import LoadOrder, LoadOutcome, WorkerSource
from pagewire_shared.kv.transport import KvTransport
from support.cells.kv_peers import eventually, peer
from support.checkpoints.checkpoints import make_checkpoint
from support.fakes.kv_fake_holder import FakeHolder, holding, layers_message

NAMES = [bytes([index]) * 16 for index in range(1, 4)]
BLOCKS = [6, 2, 8]
NUM_LAYERS = 2
LAYER_BYTES = 2 * 16 * 2 * 16 * 4
HALF = bytes(range(256)) * (LAYER_BYTES // 256)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("model"), with_tokenizer=False)


@pytest.fixture
async def receiver(tmp_path, folder):
    async with peer(folder, f"unix:{tmp_path}/d") as made:
        made.holder_address = f"unix:{tmp_path}/h"
        yield made


def order(receiver, **fields):
    return LoadOrder(
        **{
            "load_id": 1,
            "store": "",
            "names": NAMES,
            "blocks": BLOCKS,
            "timeout_ms": 20_000,
            "worker": WorkerSource(receiver.holder_address, b"h" * 16),
            **fields,
        }
    )


async def held(receiver):
    return await receiver.thread.submit(receiver.model_runner.blocks.held_names)


def layers(first_block, num_blocks, first_layer, num_layers, data=None, **fields):
    covered = (first_block, num_blocks, first_layer, num_layers)
    data = HALF * (num_blocks * num_layers) if data is None else data
    return layers_message(NAMES, covered, data, **fields)


WHOLE = layers(0, 1, 0, 2)


async def test_layers_come_in_any_split(receiver):
    messages = [layers(1, 2, 0, 1), layers(0, 1, 0, 2), layers(2, 1, 1, 1), layers(1, 1, 1, 1)]
    async with holding(FakeHolder(messages), receiver.holder_address):
        answer = await receiver.transfer.begin_load(order(receiver))
    assert (answer.num_blocks, answer.outcome) == (3, LoadOutcome.COMPLETE)
    assert answer.transport is KvTransport.GRPC
    assert await receiver.payloads(NAMES) == dict.fromkeys(NAMES, HALF * 2)


BROKEN = {
    "a byte is another": layers(1, 1, 0, 2, checksum=7),
    "of other blocks": layers_message(NAMES[1:], (1, 1, 0, 2), HALF * 2),
    "the second layer first": layers(1, 1, 1, 1),
    "a layer twice": layers(0, 2, 0, 1),
    "more blocks than asked for": layers_message(NAMES, (1, 3, 0, 1), HALF * 3),
    "more layers than there are": layers(1, 1, 0, 3),
    "no block": layers(1, 0, 0, 1),
    "no layer": layers(1, 1, 0, 0),
    "too few bytes": layers(1, 1, 0, 2, data=HALF),
    "an offset in no memory": layers(1, 1, 0, 2, data=b"", offset=0),
    "accepted twice": wire.PullResponse(accepted=wire.PullAccepted(protocol=1)),
    "nothing in it": wire.PullResponse(),
    "missing what nobody wants": wire.PullResponse(
        missing=wire.PullMissing(names=pack_names([b"x" * 16]))
    ),
}


@pytest.mark.parametrize("message", BROKEN.values(), ids=BROKEN.keys())
async def test_what_breaks_the_contract_is_not_used(receiver, message):
    async with holding(FakeHolder([WHOLE, message]), receiver.holder_address):
        answer = await receiver.transfer.begin_load(order(receiver))
    assert answer.outcome is LoadOutcome.FAILED
    assert answer.num_blocks <= 1  # the first was whole
    assert await held(receiver) == dict(list(zip(BLOCKS, NAMES, strict=True))[: answer.num_blocks])


async def test_every_flipped_byte_is_noticed(receiver):
    for position in range(0, LAYER_BYTES * 2, 397):
        data = bytearray(HALF * 2)
        data[position] ^= 16
        message = wire.PullResponse()
        message.CopyFrom(WHOLE)
        message.layers.data = bytes(data)
        async with holding(FakeHolder([message]), receiver.holder_address):
            answer = await receiver.transfer.begin_load(order(receiver))
        assert (answer.outcome, answer.num_blocks) == (LoadOutcome.FAILED, 0)


async def test_a_hole_ends_what_is_used(receiver):
    """The third block came, and without the second is of no use to anybody."""
    missing = wire.PullResponse(missing=wire.PullMissing(names=NAMES[1]))
    messages = [WHOLE, layers(2, 1, 0, 2), missing]
    async with holding(FakeHolder(messages), receiver.holder_address):
        answer = await receiver.transfer.begin_load(order(receiver))
    assert (answer.outcome, answer.num_blocks) == (LoadOutcome.MISSING, 1)
    assert await held(receiver) == {BLOCKS[0]: NAMES[0]}


async def test_a_holder_that_stops_is_waited_for_until_the_end_of_the_order(receiver):
    async with holding(FakeHolder([WHOLE]), receiver.holder_address):
        answer = await receiver.transfer.begin_load(order(receiver, timeout_ms=500))
    assert (answer.outcome, answer.num_blocks) == (LoadOutcome.LATE, 1)


async def test_a_stream_that_ends_early_is_a_failure(receiver):
    async with holding(FakeHolder([WHOLE], does_wait=False), receiver.holder_address):
        answer = await receiver.transfer.begin_load(order(receiver))
    assert answer.outcome is LoadOutcome.FAILED


async def test_nobody_there(receiver):
    answer = await receiver.transfer.begin_load(order(receiver))
    assert (answer.outcome, answer.transport) == (LoadOutcome.FAILED, None)


async def test_a_holder_that_was_restarted_costs_one_retry(receiver):
    messages = [layers(0, 3, 0, 2)]
    for _ in range(2):
        async with holding(FakeHolder(messages), receiver.holder_address):
            answer = await receiver.transfer.begin_load(order(receiver))
            assert answer.outcome is LoadOutcome.COMPLETE


async def test_memory_that_is_not_that_of_this_host_is_not_asked_for_again(receiver):
    """The holder says where its memory lies, and it is not there."""
    staging = wire.KvStaging(path="/nowhere", boot_id=boot_id(), inode=1, num_bytes=1)
    holder = FakeHolder([layers(0, 3, 0, 2)])
    holder.accepted.staging.CopyFrom(staging)
    async with holding(holder, receiver.holder_address):
        running = receiver.transfer.begin_load(order(receiver))
        await eventually(lambda: len(holder.opens) == 2)
        running.cancel()
        await asyncio.wait((running,))
        holder.accepted.ClearField("staging")
        again = await receiver.transfer.begin_load(order(receiver))
    assert [one.use_shared_memory for one in holder.opens] == [True, False, False]
    assert again.outcome is LoadOutcome.COMPLETE


async def test_what_the_holder_is_asked(receiver):
    holder = FakeHolder([layers(0, 3, 0, 2)])
    async with holding(holder, receiver.holder_address):
        await receiver.transfer.begin_load(order(receiver))
    (message,) = holder.opens
    assert message.names == pack_names(NAMES)
    assert message.worker_id == b"h" * 16
    assert 15_000 < message.remaining_ms <= 20_000
    assert message.layout.model_fingerprint == receiver.replica.info.model_fingerprint


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"worker": WorkerSource("", b"h" * 16)}, "worker"),
        ({"worker": WorkerSource("unix:/w", b"")}, "worker"),
        ({"blocks": [1]}, "blocks"),
        ({"names": [NAMES[0]] * 3}, "blocks"),
        ({"blocks": [1, 2, 4_000_000]}, "blocks"),
    ],
)
async def test_a_bad_order_is_refused(receiver, fields, field):
    with pytest.raises(WireError) as caught:
        receiver.transfer.begin_load(order(receiver, **fields))
    assert caught.value.field == field
