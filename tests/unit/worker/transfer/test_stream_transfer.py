"""Blocks that lie whole and are copied on streams of their own, between workers and to a store's
side: real executors, real gRPC, and a device whose copies run when they are let."""

import asyncio
import itertools

import pytest

from pagewire_shared.kv.load import LoadOutcome
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.kv.stream_copies import StreamCopies
from pagewire_worker.loading import cache_sizing, loader
from support.cells.kv_peers import BLOCK_SIZE, LOADED_BLOCKS, NAMES, PROMPT, eventually, peer
from support.cells.worker_driver import request
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fake_streams import PumpedStreams
from support.oracles.family_checkpoints import make_family_checkpoint

WAYS = {"device to device": (True, True), "to a CPU": (True, False), "from a CPU": (False, True)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("model"), layers=4, with_tokenizer=False)


@pytest.fixture(scope="module")
def latents(tmp_path_factory):
    """A model whose cache keeps latents."""
    return make_family_checkpoint(tmp_path_factory.mktemp("model"), "deepseek-v2")


@pytest.fixture
async def device(monkeypatch):
    """Return a function that makes the next worker one of such a device."""
    made = []

    def switch(is_device):
        def copies(device):
            made.append(PumpedStreams(len(made)))
            return StreamCopies(made[-1], pin=lambda memory: lambda: None)

        def cache(**arguments):
            return KvCache(**{**arguments, "has_whole_blocks": is_device})

        monkeypatch.setattr(cache_sizing, "KvCache", cache)
        if is_device:
            monkeypatch.setattr(loader, "make_copies", copies)
        else:
            monkeypatch.undo()
        return made

    yield switch
    for streams in made:
        streams.close()


PAIRS = [
    *itertools.product(("grpc", "auto"), WAYS, ("folder",)),
    *(("grpc", way, "latents") for way in WAYS),
]


@pytest.fixture(params=PAIRS, ids=lambda p: ", ".join(p))
async def pair(request, tmp_path, device):
    """A holder and a receiver, and the streams of the holder where it has any."""
    transport, way, model = request.param
    folder = request.getfixturevalue(model)
    settings = {"transport": transport, "cpu_backend": "torch"}
    holds, receives = WAYS[way]
    made = device(holds)
    async with peer(folder, f"unix:{tmp_path}/p", **settings) as holder:
        streams = made[0] if holds else None
        device(receives)
        async with peer(folder, f"unix:{tmp_path}/d", **settings) as receiver:
            assert (holder.model_runner.backend.kv_cache.blocks is not None) is holds
            assert (receiver.model_runner.backend.kv_cache.blocks is not None) is receives
            yield holder, receiver, streams


async def check_equal(holder, receiver, answer):
    assert (answer.outcome, answer.num_blocks) == (LoadOutcome.COMPLETE, len(NAMES))
    payloads = await receiver.payloads()
    assert list(payloads) == NAMES
    assert payloads == await holder.payloads()
    assert len(set(payloads.values())) == len(NAMES)
    await holder.is_clean()


@pytest.mark.parametrize("size", [len(PROMPT), 40])
async def test_a_pull_before_the_prompt_is_computed(pair, size):
    holder, receiver, _ = pair
    pull = receiver.pull_from(holder)
    await holder.has_pull()
    first = await holder.prefill(size)
    await check_equal(holder, receiver, await pull)
    expected = first + await holder.decode(4)
    tail = (0, 160, len(PROMPT) - 160, 1, 0)
    result = await receiver.run([tail], new_sequences=[request(0, PROMPT, [*LOADED_BLOCKS, 5])])
    assert list(result.token_ids) + await receiver.decode(4) == expected


async def test_a_pull_after_the_prompt(pair):
    holder, receiver, _ = pair
    await holder.prefill()
    await check_equal(holder, receiver, await receiver.pull_from(holder))


@pytest.fixture
async def held(tmp_path, folder, device):
    """A holder whose copies the test holds up, and a receiver on a CPU."""
    settings = {"transport": "grpc", "cpu_backend": "torch"}
    made = device(is_device=True)
    async with peer(folder, f"unix:{tmp_path}/p", **settings) as holder:
        device(is_device=False)
        async with peer(folder, f"unix:{tmp_path}/d", **settings) as receiver:
            yield holder, receiver, made[0]


async def test_nothing_is_sent_before_it_is_copied(held):
    holder, receiver, streams = held
    await holder.prefill()
    expected = await holder.payloads()
    with streams.held_up():
        pull = receiver.pull_from(holder)
        await eventually(lambda: holder.staging.num_free_bytes < holder.staging.num_bytes)
        await asyncio.sleep(0.1)
        await holder.thread.submit(lambda: None)
        assert not pull.done()
        # Staged as a whole, and yet not all in the outbox.
        (outgoing,) = holder.replica.sharer._pulls
        assert outgoing.num_done == outgoing.num_wanted == len(NAMES)
        assert not outgoing.is_staged
        assert outgoing.take() is None
        assert await receiver.payloads() == {}
    await check_equal(holder, receiver, await pull)
    assert await receiver.payloads() == expected


async def test_a_pull_that_ends_meanwhile_gives_its_memory_back_after_the_copy(held):
    holder, receiver, streams = held
    await holder.prefill()
    with streams.held_up():
        answer = await receiver.pull_from(holder, timeout_ms=300)
        assert (answer.outcome, answer.num_blocks) == (LoadOutcome.LATE, 0)
        await asyncio.sleep(0.05)
        assert holder.staging.num_free_bytes < holder.staging.num_bytes
    await holder.is_clean()


async def test_blocks_that_are_written_over_wait_for_their_copy(held):
    holder, receiver, streams = held
    await holder.prefill()
    expected = await holder.payloads()
    with streams.held_up():
        pull = receiver.pull_from(holder)
        await eventually(lambda: holder.staging.num_free_bytes < holder.staging.num_bytes)
        held_blocks = await holder.thread.submit(holder.model_runner.blocks.held_names)
        # Another prompt in the very blocks.
        other = [5 + token for token in PROMPT[: 10 * BLOCK_SIZE]]
        row = (1, 0, len(other), 1, 0)
        writing = asyncio.create_task(
            holder.run([row], new_sequences=[request(1, other, list(held_blocks))])
        )
        await asyncio.sleep(0.1)
        assert not writing.done()
    assert (await writing).failure is None
    answer = await pull
    assert answer.outcome is LoadOutcome.COMPLETE
    assert await receiver.payloads() == expected
    assert await holder.payloads() == {}
    await holder.is_clean()
