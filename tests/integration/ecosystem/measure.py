"""Measures what stores of other projects give and cost: time to the first token by the tier of the
blocks, and CPU time where nothing is found. All cells run at once and are asked in turn.

    cd tests && python -m integration.ecosystem.measure --pairs 10
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc.aio

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from support.cells.clusters import Cluster
from support.cells.kv_cells import prompt_of, running
from support.cells.outside_cells import cell_with
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.outside_stores import LmcacheServer, MooncakeLender, MooncakeMaster
from support.traffic.streams import completion

NUM_TOKENS = 2048
SETTLE_SECONDS = 1.5
SHAPE = {"hidden": 768, "layers": 8, "heads": 12, "kv_heads": 4, "max_position_embeddings": 4096}
SETTINGS = {"max_model_len": 4096, "kv_cache_memory": "512MiB", "max_num_batched_tokens": 512}


async def first_token(cluster: Cluster, prompt: Sequence[int]) -> tuple[float, dict[str, int]]:
    """Return the seconds to the first token, and the cached tokens by tier."""
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        started, seconds, cached = time.monotonic(), 0.0, {}
        async for response in stub.Complete(completion(cluster.model, prompt, 2)):
            if response.delta.token_ids and not seconds:
                seconds = time.monotonic() - started
            if response.HasField("closed"):
                usage = response.closed.usage
                cached = {one.tier: one.num_tokens for one in usage.cached_tokens_by_tier}
        return seconds, cached


def cpu_seconds(cluster: Cluster) -> float:
    """Return the CPU time of all processes of a cell."""
    total = 0.0
    for pids in cluster.processes.values():
        for pid in pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / 100
    return total


def cells(ends: ExitStack, folder: Path, checkpoint: Path) -> dict[str, list[Cluster]]:
    """Return, by store, a cell that computes and puts, and one that finds."""
    master = ends.enter_context(MooncakeMaster(folder))
    ends.enter_context(MooncakeLender(master, num_bytes=1 << 30))
    server = ends.enter_context(LmcacheServer(folder))
    configs: dict[str, dict[str, Any]] = {
        "mooncake": master.transfer_config,
        "lmcache": server.transfer_config,
    }
    made = {"none": [ends.enter_context(running(checkpoint, kv_offload="off", **SETTINGS))]}
    for name, config in configs.items():
        made[name] = [
            ends.enter_context(cell_with(checkpoint, config, **SETTINGS)) for _ in range(2)
        ]
    return made


def measure(pairs: int) -> None:
    seconds: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        checkpoint = make_checkpoint(folder / "model", **SHAPE)  # type: ignore[arg-type]
        made = cells(ends, folder, checkpoint)
        for number in range(-2, pairs):
            prompt = prompt_of(1000 + number, NUM_TOKENS)
            for name, (cluster, *others) in made.items():
                before = cpu_seconds(cluster)
                took, cached = asyncio.run(first_token(cluster, prompt))
                assert cached == {}, cached
                time.sleep(SETTLE_SECONDS)  # the blocks go out
                used = cpu_seconds(cluster) - before
                if number >= 0:
                    seconds.setdefault(f"{name}: computed", []).append(took)
                    cpu.setdefault(name, []).append(used)
                for other in others:
                    took, cached = asyncio.run(first_token(other, prompt))
                    if number >= 0:
                        tiers = ", ".join(f"{count} of {tier}" for tier, count in cached.items())
                        seconds.setdefault(f"{name}: {tiers or 'nothing'}", []).append(took)
    show(seconds, cpu)


def show(seconds: dict[str, list[float]], cpu: dict[str, list[float]]) -> None:
    base = statistics.median(seconds["none: computed"])
    print("| blocks | TTFT, median | least to most | of no store |\n| --- | --- | --- | --- |")
    for what, took in seconds.items():
        middle = statistics.median(took)
        print(
            f"| {what} ({len(took)}) | {1000 * middle:.0f} ms |"
            f" {1000 * min(took):.0f} to {1000 * max(took):.0f} ms | {middle / base:.2f} |"
        )
    print("\n| store, 0 % hits | CPU, median | of no store |\n| --- | --- | --- |")
    none = statistics.median(cpu["none"])
    for name, used in cpu.items():
        ratios = [one / other for one, other in zip(used, cpu["none"], strict=True)]
        print(
            f"| {name} | {1000 * statistics.median(used):.0f} ms |"
            f" {statistics.median(ratios):.3f} (medians {statistics.median(used) / none:.3f}) |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    measure(parser.parse_args().pairs)


if __name__ == "__main__":
    main()
