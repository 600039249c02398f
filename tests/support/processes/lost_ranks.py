"""Kills and stops every rank of a group in turn, at random instants, while requests stream.

    cd tests && python -m support.processes.lost_ranks --ranks 2 --stages 2 --instants 20

A rank gets SIGKILL or SIGSTOP at an instant drawn from the time that the streams take undisturbed.
Streams must end with the undisturbed tokens, the group must be gone within a bounded time, and no
process and no shared memory may be left behind.

With --ray, in an environment of `make ray`, each rank is on a node of its own.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import grpc.aio

from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from support.cells.clusters import Cluster, start_cluster
from support.cells.ray_nodes import ON_RAY, ranks_of_tasks, ray_nodes
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import children_of, is_running
from support.traffic.signalled import seeded_requests
from support.traffic.streams import Stream, eventually_clean, follow_all

NUM_STREAMS = 6
NUM_TOKENS = 120
END_SECONDS = 10.0
"""For the end of a group, which is measured."""
PATIENCE_SECONDS = 60.0
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
SHARED = Path("/dev/shm")


def ranks_of(cluster: Cluster, *, on_ray: bool) -> list[int]:
    """Return the processes of the worker's ranks, rank 0 first; none while it is started."""
    found = cluster.processes["worker"]
    if not found:
        return []
    return [found[0], *sorted(ranks_of_tasks() if on_ray else children_of(found[0]))]


async def group_of(cluster: Cluster, size: int, *, on_ray: bool) -> list[int]:
    """Return the processes of a group that is whole."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(ranks := ranks_of(cluster, on_ray=on_ray)) != size:
            await asyncio.sleep(0.02)
    return ranks


async def follow(
    cluster: Cluster,
    requests: Sequence[inference_pb2.CompleteRequest],
    instant: float,
    ranks: list[int],
    pid: int,
    number: signal.Signals,
) -> tuple[list[Stream], float]:
    """Follow all requests; send a signal after `instant` seconds.

    Returns:
        The streams, and the seconds until all of `ranks` had ended.
    """
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(request) for request in requests]
        followers = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        await asyncio.sleep(instant)
        began = time.monotonic()
        os.kill(pid, number)
        while any(map(is_running, ranks)):
            await asyncio.sleep(0.005)
            left = [rank for rank, one in enumerate(ranks) if is_running(one)]
            assert time.monotonic() - began < END_SECONDS, f"{left} run, {cluster.log[-2000:]}"
        seconds = time.monotonic() - began
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*followers)
    return streams, seconds


def shared_files() -> set[str]:
    """Return the names of shared memory."""
    return {one.name for one in SHARED.iterdir()}


async def run(
    cluster: Cluster, size: int, num_instants: int, seed: int, *, on_ray: bool
) -> dict[str, list[float]]:
    """Return the seconds until groups had ended, by signal and rank.

    Raises:
        AssertionError: A stream differs from the undisturbed one, or something is left behind.
    """
    dice = random.Random(seed)
    requests = seeded_requests(cluster.model, NUM_STREAMS, NUM_TOKENS)
    await follow_all(cluster.grpc_address, requests)
    began = time.monotonic()
    expected = [stream.token_ids for stream in await follow_all(cluster.grpc_address, requests)]
    longest = time.monotonic() - began
    assert all(len(tokens) == NUM_TOKENS for tokens in expected)
    found: dict[str, list[float]] = {}
    plan = [(rank, number) for rank in range(size) for number in SIGNALS] * num_instants
    for rank, number in dice.sample(plan, len(plan)):
        await eventually_clean(cluster.grpc_address, 1, timeout_seconds=PATIENCE_SECONDS)
        ranks = await group_of(cluster, size, on_ray=on_ray)
        instant = dice.random() * longest
        what = f"{number.name} of rank {rank} after {instant:.3f} s"
        print(what, flush=True)
        streams, seconds = await follow(cluster, requests, instant, ranks, ranks[rank], number)
        assert [stream.error for stream in streams] == [""] * NUM_STREAMS, what
        assert [stream.token_ids for stream in streams] == expected, what
        found.setdefault(f"{number.name} of rank {rank}", []).append(seconds)
    await eventually_clean(cluster.grpc_address, 1, timeout_seconds=30)
    return found


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--instants", type=int, default=20, help="of each rank and signal")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ray", action="store_true", help="on two nodes of Ray, of this machine")
    options = parser.parse_args()
    with ray_nodes(os.cpu_count() or 1) if options.ray else contextlib.nullcontext():
        lose(options)
    return 0


def lose(options: argparse.Namespace) -> None:
    """Lose ranks as `options` say, and print what came of it."""
    before, size = shared_files(), options.ranks * options.stages
    # A deployment gives its worker the threads of the machine.
    on_ray = {name: value for name, value in ON_RAY.items() if name != "cpu_threads"}
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make_checkpoint(
            Path(folder) / "model", architecture="Qwen3ForCausalLM", hidden=256, layers=4
        )
        cluster = start_cluster(
            checkpoint,
            tensor_parallel_size=options.ranks,
            pipeline_parallel_size=options.stages,
            kv_cache_memory=64 << 20,
            **(on_ray if options.ray else {}),
        )
        began = time.monotonic()
        try:
            found = asyncio.run(
                run(cluster, size, options.instants, options.seed, on_ray=options.ray)
            )
            ranks = ranks_of(cluster, on_ray=options.ray)
        finally:
            cluster.local.stop()
    assert not any(map(is_running, ranks)), "ranks are left behind"
    assert shared_files() <= before, "shared memory is left behind"
    for what, seconds in sorted(found.items()):
        middle = statistics.median(seconds)
        print(
            f"{what}: {len(seconds)} times; gone after {middle:.2f} s, {max(seconds):.2f} at most"
        )
    num_lost = sum(map(len, found.values()))
    print(f"{num_lost} losses in {time.monotonic() - began:.0f} s; every stream was undisturbed")


if __name__ == "__main__":
    sys.exit(main())
