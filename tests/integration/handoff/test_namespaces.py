"""A cell whose processes reach each other only over a network, parts of which fail."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc.aio
import pytest

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from support.cells.clusters import start_cluster
from support.cells.namespaced_cells import namespaced_cell
from support.cells.role_cells import RoleCell
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.namespaces import PREFIX, Network, namespaces, remove_stale
from support.processes.processes import is_running, wait_until
from support.traffic.streams import Stream, audit, completion, eventually_clean, follow_all

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

NUM_STREAMS = 6
NUM_TOKENS = 200
PATIENCE_SECONDS = 60.0
REQUESTS = [
    completion("model", [3 + (7 * stream + number) % 500 for number in range(20 + 15 * stream)], n)
    for stream, n in enumerate([NUM_TOKENS] * NUM_STREAMS)
]
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], 9000), 20) as link:
    link.sendall(bytes(int(sys.argv[2])))
    link.shutdown(socket.SHUT_WR)
    link.recv(1)
"""
TAKE = """
import socket, sys
with socket.create_server((sys.argv[1], 9000)) as server:
    print("listening", flush=True)
    while True:
        with server.accept()[0] as link:
            while link.recv(1 << 16):
                pass
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough for a stream to last a second or more."""
    folder = tmp_path_factory.mktemp("namespaces") / "model"
    return make_checkpoint(folder, architecture="Qwen3ForCausalLM", hidden=256, layers=4)


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[list[int]]:
    """What a cell without namespaces answers."""
    local = start_cluster(checkpoint, model=(f"model={checkpoint}",))
    try:
        streams = asyncio.run(follow_all(local.grpc_address, REQUESTS))
    finally:
        local.local.stop()
    assert [len(stream.token_ids) for stream in streams] == [NUM_TOKENS] * NUM_STREAMS
    return [stream.token_ids for stream in streams]


async def with_worker_cut_off(cell: RoleCell, network: Network) -> list[Stream]:
    """Follow all streams; cut off one of two workers once each has some tokens."""
    async with grpc.aio.insecure_channel(cell.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(request) for request in REQUESTS]
        tasks = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while min(len(stream.token_ids) for stream in streams) < 5:
                await asyncio.sleep(0.005)
        pools = (await audit(cell.grpc_address)).scheduler.pools
        assert len(pools) == 2
        assert all(pool.num_slots for pool in pools), "one of them runs nothing"
        assert not any(stream.is_closed for stream in streams)
        network["worker-1"].cut()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_SECONDS)
    return streams


def check(streams: list[Stream], expected: list[list[int]]) -> None:
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    assert [stream.token_ids for stream in streams] == expected


def test_a_cell_over_a_network_that_loses_a_worker(
    network: Network, checkpoint: Path, expected: list[list[int]]
) -> None:
    with namespaced_cell(network, checkpoint, num_workers=2) as cell:
        check(asyncio.run(follow_all(cell.grpc_address, REQUESTS)), expected)
        asyncio.run(eventually_clean(cell.grpc_address, 2, PATIENCE_SECONDS))

        check(asyncio.run(with_worker_cut_off(cell, network)), expected)
        asyncio.run(eventually_clean(cell.grpc_address, 1, PATIENCE_SECONDS))

        network["worker-1"].restore()
        asyncio.run(eventually_clean(cell.grpc_address, 2, PATIENCE_SECONDS))
        check(asyncio.run(follow_all(cell.grpc_address, REQUESTS)), expected)

        cell.members["worker-0"].kill()
        check(asyncio.run(follow_all(cell.grpc_address, REQUESTS)), expected)
        cell.members["worker-0"].start()
        cell.members["worker-0"].wait_ready(PATIENCE_SECONDS)
        asyncio.run(eventually_clean(cell.grpc_address, 2, PATIENCE_SECONDS))


def is_sent(
    network: Network, sender: str, receiver: str, num_bytes: int = 1, seconds: float = 30.0
) -> bool:
    """Whether bytes arrive in time; `receiver` takes them."""
    command = [*network[sender].command, sys.executable, "-c", SEND]
    try:
        done = subprocess.run(
            [*command, network[receiver].host, str(num_bytes)],
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def test_links_are_cut_parted_and_slowed(network: Network) -> None:
    for name in ("a", "b", "c"):
        network.add(name)
    takers = [
        subprocess.Popen(
            [*network[name].command, sys.executable, "-c", TAKE, network[name].host],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("b", "c")
    ]
    try:
        for taker in takers:
            assert taker.stdout is not None
            assert taker.stdout.readline() == "listening\n"
        assert is_sent(network, "a", "b")
        network["b"].cut()
        assert not is_sent(network, "a", "b", seconds=3)
        assert is_sent(network, "a", "c")
        network["b"].restore()
        assert is_sent(network, "a", "b")
        network.part("a", "b")
        assert not is_sent(network, "a", "b", seconds=3)
        assert is_sent(network, "a", "c")
        assert is_sent(network, "c", "b")
        network.join("a", "b")
        assert is_sent(network, "a", "b")

        assert is_sent(network, "a", "b", 2_000_000)
        network["b"].slow(1_000_000)
        begin = time.monotonic()
        assert is_sent(network, "a", "b", 2_000_000)
        # All but what may come at once takes its time: a bound of the link's, not of this machine.
        assert time.monotonic() - begin > 1.5
        network["b"].at_full_speed()
    finally:
        for taker in takers:
            taker.kill()
            taker.communicate()


def test_nothing_in_memory_is_shared(network: Network) -> None:
    for name in ("a", "b"):
        network.add(name)
    mark = f"/dev/shm/{PREFIX}-{os.getpid()}"
    holder = subprocess.Popen(
        [*network["a"].command, "sh", "-c", f"touch {mark} && ls {mark} && exec sleep 60"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == mark
        assert not Path(mark).exists()
        there = [*network["b"].command, "ls", mark]
        assert subprocess.run(there, capture_output=True, check=False).returncode != 0
    finally:
        holder.kill()
        holder.communicate()


ABANDON = """
import os, signal, subprocess
from support.processes.namespaces import Network
network = Network().__enter__()
space = network.add("left")
command = [*space.command, "sh", "-c", "echo; exec >/dev/null 2>&1 sleep 600"]
child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
child.stdout.readline()
print(child.pid, os.getpid(), flush=True)
child.send_signal(signal.SIGSTOP)
os.kill(os.getpid(), signal.SIGKILL)
"""


def namespaces_of(*pids: int) -> set[str]:
    """The namespaces that these processes made; other tests have theirs at the same time."""
    return {name for name in namespaces() if int(name.split("-")[2]) in pids}


def test_nothing_is_left_behind(network: Network) -> None:
    mine = namespaces_of(os.getpid())
    gone = subprocess.run(
        [sys.executable, "-c", ABANDON],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=30,
        check=False,
    )
    assert gone.returncode == -signal.SIGKILL, gone.stderr
    child, parent = map(int, gone.stdout.split())
    assert {name.rpartition("-")[2] for name in namespaces_of(parent)} == {"hub", "left"}
    remove_stale()
    assert namespaces_of(parent) == set()
    assert namespaces_of(os.getpid()) == mine != set()
    wait_until(lambda: not is_running(child), 10, "its process is gone")

    with pytest.raises(ZeroDivisionError), Network() as other:
        other.add("short")
        _ = 1 / 0
    assert namespaces_of(os.getpid()) == mine
