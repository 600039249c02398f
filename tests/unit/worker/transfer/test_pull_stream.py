"""What a holder answers to receivers of any kind: streams of standard messages over real gRPC."""

import asyncio

import grpc
import grpc.aio
import pytest

from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_protos.worker.v1 import kv_transfer_pb2_grpc
from pagewire_shared.convert import protocol_range
from pagewire_shared.kv.arrays import pack_names, unpack_names
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.options import kv_channel_options
from pagewire_worker.offload.layout_convert import layout_to_message
from pagewire_worker.transfer import block_sharer, block_source, pull_stream
from support.cells.kv_peers import HELD_BLOCKS, NAMES, PROMPT, eventually, peer
from support.checkpoints.checkpoints import make_checkpoint

LAYER = 2 * 16 * 2 * 16 * 4
STAGING = 64 * LAYER
"""One receiver gets a quarter, of the 40 layers that it wants."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("model"), layers=4, with_tokenizer=False)


@pytest.fixture
async def holder(tmp_path, folder, monkeypatch):
    for module in (block_sharer, pull_stream):
        monkeypatch.setattr(module, "MAX_DATA_BYTES", 4 * LAYER)
    async with peer(folder, f"unix:{tmp_path}/p", staging=STAGING) as made:
        options = [*kv_channel_options(), ("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(made.address, options=options) as channel:
            made.stub = kv_transfer_pb2_grpc.KvTransferServiceStub(channel)
            yield made


async def opened(holder, **fields):
    message = {
        "protocol": protocol_range(),
        "layout": layout_to_message(holder.replica.info.layout),
        "names": pack_names(NAMES),
        "remaining_ms": 20_000,
        "worker_id": holder.worker_id,
        **fields,
    }
    call = holder.stub.Pull()
    await call.write(wire.PullRequest(open=wire.PullOpen(**message)))
    return call


async def accepted(holder, num_credits=0, **fields):
    call = await opened(holder, **fields)
    assert (await call.read()).WhichOneof("message") == "accepted"
    if num_credits:
        await grant(call, num_credits)
    return call


async def grant(call, count):
    await call.write(wire.PullRequest(credit=wire.PullCredit(num_chunks=count)))


async def error_of(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await call.read() is not grpc.aio.EOF:
            pass
    return caught.value.code(), from_rpc_error(caught.value)


def other_layout(holder, **fields):
    layout = layout_to_message(holder.replica.info.layout)
    for name, value in fields.items():
        setattr(layout, name, value)
    return layout


def other_groups(holder):
    layout = other_layout(holder)
    layout.groups[0].block_size = 8
    return layout


REFUSED = {
    "protocol": lambda holder: {"protocol": {"min": 90, "max": 99}},
    "layout.model_fingerprint": lambda h: {"layout": other_layout(h, model_fingerprint=b"x")},
    "layout.numerics_fingerprint": lambda h: {"layout": other_layout(h, numerics_fingerprint=b"")},
    "layout.groups": lambda holder: {"layout": other_groups(holder)},
    "worker_id": lambda holder: {"worker_id": bytes(16)},
    "remaining_ms": lambda holder: {"remaining_ms": 0},
    "names": lambda holder: {"names": b"short"},
}


@pytest.mark.parametrize("field", REFUSED)
async def test_what_does_not_fit_is_refused(holder, field):
    code, error = await error_of(await opened(holder, **REFUSED[field](holder)))
    assert (code, error.field) == (grpc.StatusCode.FAILED_PRECONDITION, field)


async def test_names_that_cannot_be_are_refused(holder):
    many = [index.to_bytes(16, "big") for index in range(holder.replica.info.num_blocks + 1)]
    for names in (b"", NAMES[0] * 2, pack_names(many)):
        code, error = await error_of(await opened(holder, names=names))
        assert (code, error.field) == (grpc.StatusCode.FAILED_PRECONDITION, "names")


async def test_the_first_message_opens_the_pull(holder):
    call = holder.stub.Pull()
    await grant(call, 1)
    code, _ = await error_of(call)
    assert code == grpc.StatusCode.INVALID_ARGUMENT


async def test_only_so_many_at_once(holder, monkeypatch):
    monkeypatch.setattr(block_source, "MAX_PULLS", 2)
    calls = [await accepted(holder) for _ in range(2)]
    code, _ = await error_of(await opened(holder))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    calls.pop().cancel()
    await eventually(lambda: holder.source._num_open == 1)
    again = await accepted(holder)
    again.cancel()


async def collected(call, names, num_layers=4):
    """Grant credit for one message after the other; return payloads put together by hand."""
    parts = dict.fromkeys(names, b"")
    while not all(len(part) == num_layers * LAYER for part in parts.values()):
        await grant(call, 1)
        message = await call.read()
        layers = message.layers
        keys = LAYER // 2
        for layer in range(layers.num_layers):
            whole = layers.data[layer * LAYER * layers.num_blocks :]
            for index in range(layers.num_blocks):
                key = whole[index * keys : (index + 1) * keys]
                at = (layers.num_blocks + index) * keys
                name = names[layers.first_block + index]
                assert len(parts[name]) == (layers.first_layer + layer) * LAYER
                parts[name] += key + whole[at : at + keys]
    return parts


async def test_a_slow_receiver_does_not_hold_up_steps(holder):
    """Nothing is read until all is computed; the staging memory holds a part of it."""
    call = await accepted(holder)
    await holder.has_pull()
    await holder.prefill()
    staged = holder.staging.num_bytes - holder.staging.num_free_bytes
    assert 0 < staged <= STAGING // 4
    parts = await collected(call, NAMES)
    assert parts == await holder.payloads()
    call.cancel()
    await holder.is_clean()


async def test_a_slow_receiver_does_not_hold_up_others(holder):
    slow = await accepted(holder)
    quick = await accepted(holder)
    await holder.has_pull(2)
    await holder.prefill()
    assert await collected(quick, NAMES) == await holder.payloads()
    assert await collected(slow, NAMES) == await holder.payloads()


async def test_blocks_that_are_written_anew_are_not_sent(holder):
    """What was not copied before is gone; the holder waits whether it is computed again."""
    await holder.prefill()
    call = await accepted(holder, remaining_ms=1500)
    await eventually(lambda: holder.replica.sharer._pulls)
    (pull,) = holder.replica.sharer._pulls
    await eventually(lambda: pull.num_done > 0)
    num_staged = pull.num_done
    assert num_staged < len(NAMES) - 1
    await holder.thread.submit(
        lambda: holder.model_runner.blocks.begin_load(HELD_BLOCKS[num_staged:])
    )
    await grant(call, 100)
    complete = 0
    while (message := await call.read()).WhichOneof("message") == "layers":
        layers = message.layers
        if layers.first_layer + layers.num_layers == 4:
            complete = layers.first_block + layers.num_blocks
    assert complete < len(NAMES)
    assert unpack_names(message.missing.names) == NAMES[complete:]
    call.cancel()
    await holder.is_clean()


async def test_a_block_that_is_written_anew_after_its_first_layers_ends_the_pull(holder):
    call = await accepted(holder)
    await holder.has_pull()
    (pull,) = holder.replica.sharer._pulls
    await holder.chunk(0, len(PROMPT))
    # The staging memory was full after some layers of the blocks.
    assert [run.next_layer for run in pull.runs][-1] in (1, 2, 3)
    await holder.thread.submit(lambda: holder.model_runner.blocks.begin_load(HELD_BLOCKS[:10]))
    await grant(call, 100)
    while (message := await call.read()).WhichOneof("message") == "layers":
        pass
    assert unpack_names(message.missing.names) == NAMES[pull.num_done :]
    assert pull.num_done < len(NAMES)


async def test_a_receiver_that_ends_its_side_is_told(holder):
    call = await accepted(holder, 1)
    await call.done_writing()
    await holder.has_pull()
    await holder.prefill()
    code, _ = await error_of(call)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    await holder.is_clean()


async def test_memory_is_given_back_by_credits(holder):
    call = await accepted(holder, 2, use_shared_memory=True)
    await holder.prefill()
    first, second = await call.read(), await call.read()
    assert first.layers.HasField("offset")
    assert not first.layers.data
    assert first.layers.offset != second.layers.offset
    used = holder.staging.num_bytes - holder.staging.num_free_bytes
    await grant(call, 2)
    third = await call.read()
    assert third.WhichOneof("message") == "layers"
    assert holder.staging.num_bytes - holder.staging.num_free_bytes <= used
    await grant(call, 50)
    code, error = await error_of(call)
    assert (code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "credit.num_chunks")
    await holder.is_clean()


async def test_pulls_may_end_when_the_worker_leaves(holder):
    call = await accepted(holder, 100)
    await holder.has_pull()
    leaving = asyncio.create_task(holder.service.finish(10.0))
    await asyncio.sleep(0.05)
    # Where the refusal is there before the first message went out, writing meets it.
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (await opened(holder)).read()
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert not leaving.done()
    await holder.prefill()
    await collected(call, NAMES)
    call.cancel()
    await asyncio.wait_for(leaving, 5)
