"""The first line of `pagewire explain` names the cause of requests that were slow for one reason,
over real processes: what was lost on their way, and what they are slow by themselves."""

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import httpx
import pytest
from integration.explain.crowd import SHORT, Crowd

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from support.cells.clusters import Cluster, start_cluster
from support.cells.kv_cells import BLOCK_BYTES, disk_flags, prompt_of, running
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.kv_stores import KvStore
from support.processes.slow_links import UNBOUNDED, SlowLink
from support.traffic.streams import completion

NUM_BLOCKS = 80
CONTEXT_OF_SMALL = 16 * NUM_BLOCKS
CONTEXT = 4096

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def long_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "model"
    return make_checkpoint(folder, max_position_embeddings=CONTEXT)


@pytest.fixture(scope="module")
def cell(tiny_checkpoint: Path) -> Iterator[Cluster]:
    """One worker with two slots, and KV blocks for 1,280 tokens."""
    cluster = start_cluster(
        tiny_checkpoint,
        max_num_seqs=2,
        max_model_len=CONTEXT_OF_SMALL,
        kv_cache_memory=NUM_BLOCKS * BLOCK_BYTES,
    )
    yield cluster
    cluster.local.stop()


@pytest.fixture(scope="module")
def wide(long_checkpoint: Path) -> Iterator[Cluster]:
    """One worker whose steps have few tokens, and prompts of thousands."""
    cluster = start_cluster(long_checkpoint, max_num_batched_tokens=16)
    yield cluster
    cluster.local.stop()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def kill(cluster: Cluster, role: str, number: signal.Signals = signal.SIGKILL) -> None:
    (pid,) = cluster.processes[role]
    os.kill(pid, number)


def test_one_that_gave_way(cell: Cluster, pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(cell, pool)
    # Its prompt has most blocks; the other goes on without it until it ends.
    older = crowd.run("older", 1150)
    younger = crowd.run("younger", 300, prompt=[3 + one % 490 for one in range(700)])
    younger.result()
    older.result()
    assert "waiting to go on after it gave way to others for want of KV" in crowd.explained(
        "younger"
    )


def test_a_lost_worker(cell: Cluster, pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(cell, pool)
    sent = crowd.run("survivor", 30)
    kill(cell, "worker")
    late = crowd.queue("late")
    sent.result()
    late.result()
    assert "after its worker was lost" in crowd.explained("survivor")
    assert "waiting for a worker that serves its model" in crowd.explained("late")


def test_a_worker_that_hangs(cell: Cluster, pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(cell, pool)
    sent = crowd.run("hung", 200)
    kill(cell, "worker", signal.SIGSTOP)
    sent.result()
    assert "after its worker was lost" in crowd.explained("hung")


def test_a_lost_scheduler(cell: Cluster, pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(cell, pool)
    sent = crowd.run("orphan", 100)
    kill(cell, "scheduler", signal.SIGSTOP)
    late = crowd.queue("no-scheduler")
    sent.result()
    late.result()
    assert "getting to a scheduler again, after its own was lost" in crowd.explained("orphan")
    assert "getting to a scheduler again" in crowd.explained("no-scheduler")


def test_a_missed_deadline(cell: Cluster, pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(cell, pool)
    busy = [crowd.run(f"busy-{one}", 500) for one in range(2)]
    with (
        grpc.insecure_channel(cell.grpc_address) as channel,
        pytest.raises(grpc.RpcError) as failed,
    ):
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        request = completion(cell.model, [5, 6, 7], 4)
        metadata = (("x-request-id", "hopeless"),)
        list(stub.Complete(request, timeout=0.3, metadata=metadata))
    for one in busy:
        one.result()
    assert failed.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    summary = crowd.explained("hopeless")
    assert summary.startswith(("It failed after 0.", "Its client left after 0."))
    assert "waiting at the scheduler for a slot" in summary


def seconds_to_fill(cluster: Cluster) -> float:
    """Wait until no more tokens are generated, and return after how many seconds that was."""
    began = changed = time.monotonic()
    count = -1.0
    while time.monotonic() - changed < 2.0:
        time.sleep(0.1)
        text = httpx.get(f"{cluster.http_url}/metrics", timeout=10).text
        found = re.findall(r"^vllm:generation_tokens_total\{.*\} (.*)$", text, re.MULTILINE)
        assert found, text
        if (now := sum(map(float, found))) != count:
            count, changed = now, time.monotonic()
    return changed - began


def test_a_slow_client(wide: Cluster, pool: ThreadPoolExecutor) -> None:
    place = urlsplit(wide.http_url)
    body = (
        f'{{"model": "{wide.model}", "prompt": [5, 6, 7], "max_tokens": 400, "logprobs": 20,'
        ' "n": 15, "ignore_eos": true, "stream": true}'
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((place.hostname, place.port))
        client.sendall(
            f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nx-request-id: sleepy\r\n"
            f"Content-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        # It takes nothing for longer than the buffers before it take to be filled.
        time.sleep(2.0 * seconds_to_fill(wide) + 2.0)
        while client.recv(1 << 16):
            pass
    assert "waiting for the client to take the answer" in Crowd(wide, pool).explained("sleepy")


def test_a_long_prompt_and_one_behind_it(wide: Cluster, pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(wide, pool)
    prompt = [3 + one % 490 for one in range(CONTEXT - 16)]
    first = crowd.queue("long-prompt", 2, prompt=prompt)
    # Its first chunk shares the steps of the one before, and has what that leaves.
    behind = crowd.queue("behind", 2, prompt=prompt[1:20])
    first.result()
    behind.result()
    assert "computing its prompt" in crowd.explained("long-prompt")
    assert "waiting for its turn in the steps of its worker" in crowd.explained("behind")


def test_a_long_answer(wide: Cluster, pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(wide, pool)
    crowd.run("long-answer").result()
    assert "generating its tokens" in crowd.explained("long-answer")


def test_a_long_text(wide: Cluster, pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(wide, pool)
    text = "the quick brown fox " * 40_000
    crowd.run("long-text", SHORT, prompt=text, truncate_prompt_tokens=8).result()
    assert "rendering and tokenizing its prompt" in crowd.explained("long-text")


def test_a_costly_grammar(wide: Cluster, pool: ThreadPoolExecutor) -> None:
    crowd = Crowd(wide, pool)
    fields = {f"field_{one}": {"type": "string", "maxLength": 40 + one} for one in range(60)}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    crowd.run("schema", SHORT, structured_outputs={"json": schema}, ignore_eos=False).result()
    summary = crowd.explained("schema")
    assert "checking its grammar" in summary or "its grammar to be compiled" in summary


@pytest.mark.parametrize("tier", ["memory", "disk"])
def test_a_slow_store(
    tiny_checkpoint: Path, tmp_path: Path, pool: ThreadPoolExecutor, tier: str
) -> None:
    memory = "16MiB" if tier == "memory" else "256KiB"
    settings = {"max_model_len": CONTEXT_OF_SMALL, "kv_cache_memory": NUM_BLOCKS * BLOCK_BYTES}
    with (
        KvStore(tmp_path, *disk_flags(tmp_path / "disk", memory=memory)) as store,
        SlowLink(tmp_path, store.address) as link,
        running(tiny_checkpoint, link.address, kv_load="always", **settings) as cluster,
    ):
        crowd = Crowd(cluster, pool)
        crowd.run("store", SHORT, prompt=prompt_of(1, 700)).result()
        crowd.run("others", SHORT, prompt=prompt_of(2, 1200)).result()
        time.sleep(1.0)
        link.set_rate(200_000.0)
        time.sleep(2.0)
        crowd.run("load", SHORT, prompt=prompt_of(1, 700)).result()
        assert f"waiting for KV blocks that it found in {tier}" in crowd.explained("load")
        link.set_rate(UNBOUNDED)
