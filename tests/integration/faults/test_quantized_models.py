"""Quantized models whose worker is killed, or whose prompts are computed on another worker: text
and log-probabilities are those of an undisturbed worker, bit by bit."""

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from pagewire_worker.convert.gguf_folder import describe_gguf
from support.cells.clusters import Cluster, MakeCluster
from support.checkpoints.checkpoints import make_checkpoint
from support.checkpoints.gguf_files import write_gguf
from support.checkpoints.packed_checkpoints import write_w4a16
from support.kernels.fused_kernels import needs_kernels
from support.traffic.streams import Stream, completion, eventually_clean

pytestmark = needs_kernels

NUM_STREAMS = 6
NUM_TOKENS = 150
SETTINGS: dict[str, Any] = {"dtype": "bfloat16", "cpu_backend": "fused", "kv_cache_dtype": "int8"}


@dataclass(slots=True)
class ScoredStream(Stream):
    """A stream with the log-probabilities of its tokens and of their alternatives."""

    logprobs: list[bytes] = field(default_factory=list)

    def _take(self, response: inference_pb2.CompleteResponse) -> None:
        Stream._take(self, response)
        self.logprobs += [one.SerializeToString() for one in response.delta.logprobs]

    @property
    def answer(self) -> tuple[list[int], str, list[bytes]]:
        """All that must be equal."""
        return self.token_ids, self.text, self.logprobs


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is quantized. It is large enough for a stream to last some time."""
    folder = tmp_path_factory.mktemp("quantized") / "plain"
    return make_checkpoint(folder, architecture="Qwen3ForCausalLM", hidden=256, layers=3)


def requests(cluster: Cluster, num_tokens: int) -> list[ScoredStream]:
    """Half greedy, half sampled with a seed; prompts of 100 to 130 tokens."""
    dice, streams = random.Random(5), []
    for index in range(NUM_STREAMS):
        prompt = dice.choices(range(3, 500), k=dice.randrange(100, 130))
        sampling = {"logprobs": 2} | ({} if index % 2 else {"temperature": 1.0, "seed": index})
        streams.append(ScoredStream(completion(cluster.model, prompt, num_tokens, **sampling)))
    return streams


async def follow(
    cluster: Cluster, streams: Sequence[ScoredStream], kill_after: int | None = None
) -> Sequence[ScoredStream]:
    """Follow all to the end; kill a worker once each has so many tokens and none has ended."""
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        tasks = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        if kill_after is not None:
            while min(len(stream.token_ids) for stream in streams) < kill_after:
                await asyncio.sleep(0.001)
            assert not any(stream.is_closed for stream in streams)
            os.kill(cluster.processes["worker"][0], signal.SIGKILL)
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
    assert [stream.error for stream in streams] == [""] * len(streams)
    for stream in streams:
        assert len(stream.logprobs) == len(stream.token_ids)
    return streams


def test_streams_of_4_bit_weights_go_on_when_a_worker_is_killed(
    plain: Path, tmp_path: Path, make_cluster: MakeCluster
) -> None:
    folder = write_w4a16(tmp_path / "w4a16", plain)
    cluster = make_cluster(folder, num_workers=2, **SETTINGS)
    wanted = asyncio.run(follow(cluster, requests(cluster, NUM_TOKENS)))
    found = asyncio.run(follow(cluster, requests(cluster, NUM_TOKENS), kill_after=5))
    assert [one.answer for one in found] == [one.answer for one in wanted]
    assert any(one.num_recoveries for one in found)
    assert not any(one.num_recoveries for one in wanted)
    asyncio.run(eventually_clean(cluster.grpc_address, 2, timeout_seconds=30))


def test_prompts_over_blocks_of_a_gguf_file_are_handed_off(
    plain: Path, tmp_path: Path, make_cluster: MakeCluster
) -> None:
    write_gguf(tmp_path / "m.gguf", plain, "Q4_0")
    folder = tmp_path / "q4_0"
    folder.mkdir()
    describe_gguf(tmp_path / "m.gguf", folder, is_linked=True)
    one = make_cluster(folder, kv_offload="off", **SETTINGS)
    wanted = asyncio.run(follow(one, requests(one, 20)))
    apart = make_cluster(
        folder,
        prefill_workers=1,
        decode_workers=1,
        handoff="always",
        kv_offload="off",
        **SETTINGS,
    )
    found = asyncio.run(follow(apart, requests(apart, 20)))
    assert [stream.answer for stream in found] == [stream.answer for stream in wanted]
    handed_off = [stream.timelines[0]["is_handed_off"] for stream in found]
    # On a busy machine one may be given up.
    assert sum(handed_off) > NUM_STREAMS / 2
    assert not any(stream.timelines[0]["is_handed_off"] for stream in wanted)
