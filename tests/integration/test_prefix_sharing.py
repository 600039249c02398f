"""What is computed once: the prompt of many choices, a prefix that many bring at once, and what the
earlier turns of a conversation left behind; counted by the scheduler of a real deployment."""

import asyncio
import random
from collections.abc import Iterator

import grpc.aio
import pytest

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.traffic.streams import Stream, audit, completion, follow_all

BLOCK_SIZE = 16
NUM_CONVERSATIONS = 64
NUM_TURNS = 4
NUM_WAVES = 3
NUM_TOKENS = 8
VOCABULARY = range(3, 500)


def computed(cluster: Cluster) -> list[int]:
    """Tokens that the scheduler has counted as computed, per worker."""
    pools = asyncio.run(audit(cluster.grpc_address)).scheduler.pools
    return [pool.num_computed_tokens for pool in sorted(pools, key=lambda pool: pool.worker)]


def computed_since(cluster: Cluster, before: list[int]) -> list[int]:
    return [now - then for now, then in zip(computed(cluster), before, strict=True)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = make_checkpoint(tmp_path_factory.mktemp("sharing") / "model", hidden=64, layers=2)
    cluster = start_cluster(
        folder,
        dtype="float32",
        num_workers=2,
        max_model_len=1100,
        max_num_seqs=64,
        kv_cache_memory="64MiB",
    )
    yield cluster
    cluster.local.stop()


def some_tokens(dice: random.Random, count: int) -> list[int]:
    return dice.choices(VOCABULARY, k=count)


def test_a_prompt_of_eight_choices_is_computed_once(pair: Cluster) -> None:
    before = computed(pair)
    request = completion(pair.model, some_tokens(random.Random(1), 1000), 10, temperature=1.0)
    request.options.n = 8
    (stream,) = asyncio.run(follow_all(pair.grpc_address, [request]))
    assert stream.is_closed
    # The first token of each choice comes with the prompt, the last is never computed.
    assert sum(computed_since(pair, before)) == 1000 + 8 * 9


def test_a_prefix_that_comes_sixteen_times_at_once_is_computed_once_per_worker(
    pair: Cluster,
) -> None:
    before = computed(pair)
    prefix = some_tokens(random.Random(2), 62 * BLOCK_SIZE)
    requests = [completion(pair.model, [*prefix, 10 + number], 2) for number in range(16)]
    streams = asyncio.run(follow_all(pair.grpc_address, requests))
    assert [stream.error for stream in streams] == [""] * 16
    # Beside the prefix, per request: the token after it, and one token decoded.
    assert sum(computed_since(pair, before)) <= 2 * len(prefix) + 16 * 2


async def talk(stub: object, cluster: Cluster, wave: int, number: int) -> tuple[int, int]:
    """Hold one conversation; return how many tokens its later turns could have found cached, and
    how many would have been computed without a cache."""
    dice = random.Random(f"talk {wave} {number}")
    text = some_tokens(dice, dice.randrange(50, 400))
    num_reusable = num_needed = 0
    for turn in range(NUM_TURNS):
        stream = Stream(completion(cluster.model, text, NUM_TOKENS))
        await stream.follow(stub)  # type: ignore[arg-type]
        assert not stream.error
        text += stream.token_ids
        num_needed += len(text) - 1
        if turn < NUM_TURNS - 1:
            # Full blocks; the token sampled last was never computed.
            num_reusable += (len(text) - 1) // BLOCK_SIZE * BLOCK_SIZE
        text += some_tokens(dice, 30)
        await asyncio.sleep(dice.random() * 0.2)
    return num_reusable, num_needed


async def all_talk(cluster: Cluster, wave: int) -> tuple[int, int]:
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        talks = [talk(stub, cluster, wave, number) for number in range(NUM_CONVERSATIONS)]
        reusable, needed = zip(*await asyncio.gather(*talks), strict=True)
        return sum(reusable), sum(needed)


def test_conversations_find_their_earlier_turns_and_load_stays_even(pair: Cluster) -> None:
    waves = []
    # At first nobody knows how fast workers are, and a busy machine may hold one up for a moment.
    for wave in range(NUM_WAVES):
        before = computed(pair)
        num_reusable, num_needed = asyncio.run(all_talk(pair, wave))
        one, two = computed_since(pair, before)
        # Found on the worker, or loaded from the KV store when the other one had computed them.
        found = (num_needed - one - two) / num_reusable
        share = max(one, two) / (one + two)
        if found >= 0.95 and share <= 0.6:
            return
        waves.append((found, share))
    raise AssertionError(f"found of what could be, and computed by one worker of two: {waves}")
