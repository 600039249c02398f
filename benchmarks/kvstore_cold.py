"""CPU time of requests whose prefixes no store has, with a connected store and without one."""

import argparse
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc
from kvstore_ttft import BLOCK_SIZE, ask, deployment
from parts.pairs import mean_with_bound

from pagewire.local.cluster import LocalCluster
from pagewire.models import BUILTIN_NAME

AT_ONCE: Final = 4
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_REQUESTED: Final = ("frontend", "scheduler", "worker")


def add_arguments(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this part's arguments."""
    parser = parts.add_parser("cold")
    parser.add_argument("--checkpoint", default=BUILTIN_NAME)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--requests", type=int, default=32, help="of one side of a pair")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--connector", default="pagewire", help="pagewire, mooncake or lmcache")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the ratios of pairs, and their mean."""
    settings: dict[str, object] = {"kv_connector": options.connector, "port": 0, "grpc_port": 0}
    if options.connector == "pagewire":
        settings["kvstore_memory"] = 512 << 20
    with (
        deployment(options.checkpoint, kv_offload="off", port=0, grpc_port=0) as without,
        deployment(options.checkpoint, **settings) as with_store,
    ):
        dice = random.Random(11)
        ratios: dict[str, list[float]] = {"with the store's process": [], "without it": []}
        # The first pair warms up.
        for number in range(-1, options.pairs):
            sides = [without, with_store] if number % 2 else [with_store, without]
            found = {id(one): seconds(one, dice, options) for one in sides}
            if number < 0:
                continue
            plain, _ = found[id(without)]
            own, store = found[id(with_store)]
            ratios["with the store's process"].append((own + store) / plain)
            ratios["without it"].append(own / plain)
            print(f"pair {number + 1}: {own / plain:.3f}, {(own + store) / plain:.3f}", flush=True)
    for name, values in ratios.items():
        mean, bound = mean_with_bound(values)
        print(f"CPU time of a request by that without a store, {name}: {mean:.3f} +- {bound:.3f}")


def seconds(
    cluster: LocalCluster, dice: random.Random, options: argparse.Namespace
) -> tuple[float, float]:
    """Return CPU seconds per request: of the roles that serve it, and of the store."""
    prompts = [
        [dice.randrange(300, 3000) for _ in range(options.tokens // BLOCK_SIZE * BLOCK_SIZE)]
        for _ in range(options.requests)
    ]
    before = spent(cluster, *_REQUESTED), spent(cluster, "kvstore")
    with (
        grpc.insecure_channel(cluster.grpc_address) as channel,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        list(pool.map(lambda prompt: ask(channel, cluster, prompt, set()), prompts))
    after = spent(cluster, *_REQUESTED), spent(cluster, "kvstore")
    own, store = (end - begin for begin, end in zip(before, after, strict=True))
    return own / options.requests, store / options.requests


def spent(cluster: LocalCluster, *roles: str) -> float:
    """Return the CPU seconds of all processes of some roles."""
    ticks = 0
    for role in roles:
        for pid in cluster.pids(role).values():
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(words[11]) + int(words[12])
    return ticks / _TICKS
