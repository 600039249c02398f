"""Blocks that one executor computes and another one pulls are equal, byte for byte."""

import asyncio

import pytest

from pagewire_shared.kv.load import LoadOutcome
from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.kv.layer_watch import LayerCalls
from pagewire_worker.runner import model_runner as model_runner
from pagewire_worker.transfer import metrics
from support.cells.kv_peers import LOADED_BLOCKS, NAMES, PROMPT, SECONDS, eventually, peer
from support.cells.worker_driver import request
from support.checkpoints.checkpoints import make_checkpoint

TRANSPORTS = {"grpc": KvTransport.GRPC, "auto": KvTransport.SHARED_MEMORY}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("model"), layers=4, with_tokenizer=False)


@pytest.fixture(params=list(TRANSPORTS))
async def pair(request, tmp_path, folder):
    """A holder and a receiver."""
    transport = request.param
    async with (
        peer(folder, f"unix:{tmp_path}/p", transport=transport) as holder,
        peer(folder, f"unix:{tmp_path}/d", transport=transport) as receiver,
    ):
        receiver.expected_transport = TRANSPORTS[transport]
        yield holder, receiver


async def check_equal(holder, receiver, answer):
    assert (answer.outcome, answer.num_blocks) == (LoadOutcome.COMPLETE, len(NAMES))
    assert answer.transport is receiver.expected_transport
    assert answer.num_bytes == len(NAMES) * receiver.replica.info.layout.bytes_per_block
    assert 0 <= answer.transfer_seconds <= answer.seconds
    payloads = await receiver.payloads()
    assert list(payloads) == NAMES
    assert payloads == await holder.payloads()
    held = await receiver.thread.submit(receiver.model_runner.blocks.held_names)
    assert held == dict(zip(LOADED_BLOCKS, NAMES, strict=True))
    await holder.is_clean()


@pytest.mark.parametrize("size", [len(PROMPT), 64, 40])
async def test_a_pull_before_the_prompt_is_computed(pair, size):
    holder, receiver = pair
    pull = receiver.pull_from(holder)
    await holder.has_pull()
    first = await holder.prefill(size)
    await check_equal(holder, receiver, await pull)
    # The receiver computes the tail and goes on as the holder does.
    expected = first + await holder.decode(6)
    tail = (0, 160, len(PROMPT) - 160, 1, 0)
    result = await receiver.run([tail], new_sequences=[request(0, PROMPT, [*LOADED_BLOCKS, 5])])
    assert list(result.token_ids) + await receiver.decode(6) == expected


async def test_a_pull_in_the_middle_of_the_prompt(pair):
    holder, receiver = pair
    for begin in (0, 40):
        await holder.chunk(begin, begin + 40)
    pull = receiver.pull_from(holder)
    await holder.has_pull()
    for begin in (80, 120):
        await holder.chunk(begin, begin + 40)
    await check_equal(holder, receiver, await pull)


async def test_a_pull_after_the_prompt(pair):
    holder, receiver = pair
    pulls = metrics.PULLS.labels("complete")._value
    num_before = pulls.get()
    await holder.prefill()
    await check_equal(holder, receiver, await receiver.pull_from(holder))
    await eventually(lambda: pulls.get() == num_before + 1)


async def test_two_receivers_and_a_second_pull(pair):
    holder, receiver = pair
    pulls = [receiver.pull_from(holder, load_id=1)]
    pulls.append(receiver.pull_from(holder, load_id=2, blocks=[5, 6, 7, 9, 11, 14, 16, 17, 18, 19]))
    await holder.has_pull(2)
    await holder.prefill()
    answers = await asyncio.gather(*pulls)
    assert [answer.num_blocks for answer in answers] == [10, 10]
    assert await receiver.payloads() == await holder.payloads()
    again = await receiver.pull_from(holder, load_id=1)
    assert again.outcome is LoadOutcome.COMPLETE
    await holder.is_clean()


async def test_layers_leave_while_the_step_runs(pair, monkeypatch):
    """All layers but the last are copied while the step computes the next ones."""
    holder, receiver = pair
    pull = receiver.pull_from(holder)
    await holder.has_pull()
    (outgoing,) = holder.replica.sharer._pulls
    backend = holder.model_runner.backend
    calls, seen = backend._on_layer, []

    class Watched(LayerCalls):
        def __call__(self):
            super().__call__()
            seen.append((outgoing.runs[0].next_layer, outgoing.num_done))

    monkeypatch.setattr(backend, "_on_layer", Watched(calls._advance, calls._follower))
    await holder.chunk(0, len(PROMPT))
    # The last layer is not copied before the step has succeeded.
    assert seen == [(1, 0), (2, 0), (3, 0), (3, 0)]
    await check_equal(holder, receiver, await pull)


async def test_what_never_comes_is_missing(pair):
    holder, receiver = pair
    await holder.chunk(0, 80)
    answer = await receiver.pull_from(holder, timeout_ms=1000)
    assert answer.outcome in (LoadOutcome.MISSING, LoadOutcome.LATE)
    assert answer.num_blocks == 5
    assert await receiver.payloads() == await holder.payloads()
    held = await receiver.thread.submit(receiver.model_runner.blocks.held_names)
    assert held == dict(zip(LOADED_BLOCKS[:5], NAMES[:5], strict=True))
    await holder.is_clean()


async def test_a_step_that_fails_gives_no_block(pair, monkeypatch):
    holder, receiver = pair
    pull = receiver.pull_from(holder)
    await holder.has_pull()
    await holder.chunk(0, 64)
    with monkeypatch.context() as patched:
        patched.setattr(model_runner, "sample_step", lambda *args: 1 / 0)
        failed = await holder.chunk(64, 128)
        assert failed.failure is not None
    answer = await asyncio.wait_for(pull, SECONDS / 2)
    assert (answer.outcome, answer.num_blocks) == (LoadOutcome.MISSING, 4)
    held = await receiver.thread.submit(receiver.model_runner.blocks.held_names)
    assert held == dict(zip(LOADED_BLOCKS[:4], NAMES[:4], strict=True))
    await holder.is_clean()


async def test_a_step_that_fails_before_its_first_layer_is_waited_for_again(pair, monkeypatch):
    holder, receiver = pair
    pull = receiver.pull_from(holder)
    await holder.has_pull()
    await holder.chunk(0, 64)
    with monkeypatch.context() as patched:
        patched.setattr(holder.model_runner.backend, "forward", lambda batch: 1 / 0)
        assert (await holder.chunk(64, 128)).failure is not None
    # The step after it may rest on it, and gives no names.
    await holder.run([])
    await holder.chunk(64, 128)
    await holder.chunk(128, len(PROMPT))
    await check_equal(holder, receiver, await pull)


async def test_names_of_a_suspect_step_are_not_sent(pair, monkeypatch):
    holder, receiver = pair
    pull = receiver.pull_from(holder, timeout_ms=2000)
    await holder.has_pull()
    with monkeypatch.context() as patched:
        patched.setattr(holder.model_runner.backend, "forward", lambda batch: 1 / 0)
        assert (await holder.chunk(0, 64)).failure is not None
    assert (await holder.chunk(0, len(PROMPT))).failure is None
    answer = await pull
    assert (answer.num_blocks, answer.num_bytes) == (0, 0)
    await holder.is_clean()


async def test_a_receiver_that_cancels_frees_what_is_staged(pair):
    holder, receiver = pair
    pull = receiver.pull_from(holder)
    await holder.has_pull()
    await holder.chunk(0, 64)
    receiver.transfer.loads.cancel(1)
    answer = await pull
    assert answer.outcome is LoadOutcome.CANCELLED
    await holder.chunk(64, 128)
    await holder.is_clean()
    held = await receiver.thread.submit(receiver.model_runner.blocks.held_names)
    assert len(held) == answer.num_blocks


async def test_digests_say_whether_blocks_are_equal(pair):
    holder, receiver = pair
    await holder.prefill()
    await receiver.pull_from(holder, names=NAMES[:8], blocks=LOADED_BLOCKS[:8])
    ours, theirs = await holder.transfer.digests(NAMES), await receiver.transfer.digests(NAMES)
    assert ours[:8] == theirs[:8]
    assert len(set(ours)) == 10
    assert theirs[8:] == [bytes(32)] * 2


async def test_blocks_of_a_model_of_transformers(tmp_path, gpt2):
    """It calls back in each layer, too."""
    async with (
        peer(gpt2, f"unix:{tmp_path}/p") as holder,
        peer(gpt2, f"unix:{tmp_path}/d") as receiver,
    ):
        receiver.expected_transport = KvTransport.SHARED_MEMORY
        pull = receiver.pull_from(holder)
        await holder.has_pull()
        (outgoing,) = holder.replica.sharer._pulls
        await holder.chunk(0, 80)
        await eventually(lambda: outgoing.num_done > 0)
        await holder.chunk(80, len(PROMPT))
        await check_equal(holder, receiver, await pull)
