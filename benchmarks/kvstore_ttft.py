"""Time to first token of a long prefix: computed, from the worker's cache, and from each tier."""

import argparse
import contextlib
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
from parts.store_process import StoreProcess, redis_process, store_process

from pagewire.config import config_from_keywords
from pagewire.local.cluster import LocalCluster
from pagewire.models import BUILTIN_NAME
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from pagewire_protos.kvstore.v1 import kv_store_pb2, kv_store_pb2_grpc
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc

BLOCK_SIZE = 16
TIERS = ("memory", "disk", "redis")
WAIT_SECONDS = 60.0


def add_arguments(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this part's arguments."""
    parser = parts.add_parser("ttft")
    parser.add_argument("--checkpoint", default=BUILTIN_NAME)
    parser.add_argument("--tokens", type=int, default=1900)
    parser.add_argument("--repeats", type=int, default=5)
    parser.set_defaults(run=run)


@contextlib.contextmanager
def deployment(checkpoint: str, **settings: object) -> Iterator[LocalCluster]:
    """One worker, with a store of its own or the one in `settings`."""
    wanted = {"model": (checkpoint,), "block_size": BLOCK_SIZE, "log_level": "error", **settings}
    cluster = LocalCluster(config_from_keywords(wanted, {}).config)
    try:
        cluster.start()
        cluster.wait_ready(120.0)
        yield cluster
    finally:
        cluster.stop()


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as name, redis_process(Path(name)) as redis:
        disk = ("--disk-path", f"{name}/disk", "--disk-size", "4GiB")
        flags = ("--memory-size", "640MiB", *disk, "--redis", redis)
        with (
            store_process(f"unix:{name}/kv.sock", *flags) as store,
            deployment(
                options.checkpoint, kvstore=(store.address,), kv_load="always", port=0, grpc_port=0
            ) as cluster,
        ):
            _measure(cluster, store, options, ["--memory-size", "640MiB", "--redis", redis])


def _measure(
    cluster: LocalCluster, store: StoreProcess, options: argparse.Namespace, redis_flags: list[str]
) -> None:
    dice = random.Random(7)
    seconds: dict[str, list[float]] = {"computed": [], "worker": []}
    prompts = [
        [dice.randrange(300, 3000) for _ in range(options.tokens)] for _ in range(options.repeats)
    ]
    with grpc.insecure_channel(cluster.grpc_address) as channel:
        # Warms up, and lets the scheduler measure both speeds.
        probe = [dice.randrange(300, 3000) for _ in range(options.tokens)]
        ask(channel, cluster, probe)
        for prompt in prompts:
            seconds["computed"].append(ask(channel, cluster, prompt, set()))
            seconds["worker"].append(ask(channel, cluster, prompt, {"worker"}))
        num_blocks = (options.repeats + 1) * (options.tokens // BLOCK_SIZE)
        for tier in TIERS:
            wait_for_blocks(store.address, tier, num_blocks)
        for tier in TIERS:
            if tier == "disk":
                store.restart()
            elif tier == "redis":
                store.flags = redis_flags
                store.restart()
            wait_for_watch(channel, cluster, probe)
            for prompt in prompts:
                reset(channel)
                taken = ask(channel, cluster, prompt, {tier})
                seconds.setdefault(tier, []).append(taken)
    computed = statistics.median(seconds["computed"])
    print(f"| prefix of {options.tokens} tokens | TTFT ms, median (least to most) | of computing |")
    print("| --- | --- | --- |")
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(
            f"| {name} | {middle * 1000:.1f} ({min(values) * 1000:.1f} to "
            f"{max(values) * 1000:.1f}) | {middle / computed:.2f} |"
        )


def ask(
    channel: grpc.Channel,
    cluster: LocalCluster,
    prompt: list[int],
    tiers: set[str] | None = None,
) -> float:
    """Return the time to the first token; the prefix must have come from `tiers`."""
    request = inference_pb2.CompleteRequest(
        model=cluster.models[0].name,
        token_ids=inference_pb2.TokenIds(ids=prompt),
        options=inference_pb2.GenerationOptions(
            sampling=sampling_pb2.SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True)
        ),
    )
    first = 0.0
    begun = time.perf_counter()
    for response in inference_pb2_grpc.InferenceServiceStub(channel).Complete(request):
        if not first and response.delta.token_ids:
            first = time.perf_counter() - begun
        if response.HasField("closed") and tiers is not None:
            found = {entry.tier for entry in response.closed.usage.cached_tokens_by_tier}
            if found != tiers:
                raise UnexpectedTierError(f"the prefix came from {found}, not {tiers}")
    return first


def wait_for_blocks(address: str, tier: str, count: int) -> None:
    """Wait until a tier holds `count` blocks."""
    end = time.monotonic() + WAIT_SECONDS
    with grpc.insecure_channel(address) as channel:
        stub = kv_store_pb2_grpc.KvStoreServiceStub(channel)
        while True:
            stats = stub.Stats(kv_store_pb2.StatsRequest())
            held = {entry.tier: entry.num_blocks for entry in stats.tiers}
            if held.get(tier, 0) >= count:
                return
            if time.monotonic() > end:
                raise SystemExit(f"{tier} holds {held.get(tier)} of {count} blocks")
            time.sleep(0.1)


def reset(channel: grpc.Channel) -> None:
    """Let the scheduler forget what workers have."""
    admin_pb2_grpc.AdminServiceStub(channel).ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest())


def wait_for_watch(channel: grpc.Channel, cluster: LocalCluster, prompt: list[int]) -> None:
    """Wait until blocks come from a store that was just started."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        reset(channel)
        with contextlib.suppress(UnexpectedTierError):
            ask(channel, cluster, prompt, set())
            if time.monotonic() > end:
                raise SystemExit("the scheduler does not find the store's blocks")
            time.sleep(0.2)
            continue
        return


class UnexpectedTierError(Exception):
    """A prefix came from elsewhere."""
