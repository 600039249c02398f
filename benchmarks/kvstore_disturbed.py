"""Throughput beside a store that is healthy, stopped, dead, or behind 1 Mbit/s, against none."""

import argparse
import contextlib
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kvstore_ttft import deployment
from parts.store_process import StoreProcess, store_process

from pagewire.local.cluster import LocalCluster
from pagewire.models import BUILTIN_NAME

HERE = Path(__file__).parent
CASES = ("none", "healthy", "stopped", "killed", "slow")
MBIT_BYTES = 125_000


def add_arguments(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this part's arguments."""
    parser = parts.add_parser("disturbed")
    parser.add_argument("--checkpoint", default=BUILTIN_NAME)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-prompts", type=int, default=48)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--input-len", type=int, default=256)
    parser.add_argument("--output-len", type=int, default=32)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.set_defaults(run=run)


@contextlib.contextmanager
def proxy(folder: str, to: str) -> Iterator[str]:
    """A way to the store that lets 1 Mbit a second through; its address."""
    listen = f"{folder}/slow.sock"
    command = [
        sys.executable,
        str(HERE / "parts" / "throttled_proxy.py"),
        "--listen",
        listen,
        "--to",
        to,
    ]
    process = subprocess.Popen(
        [*command, "--bytes-per-second", str(MBIT_BYTES)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield f"unix:{listen}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def case(name: str, checkpoint: str) -> Iterator[tuple[LocalCluster, StoreProcess | None]]:
    """A deployment with its store, which is not disturbed yet."""
    with contextlib.ExitStack() as stack:
        if name == "none":
            settings: dict[str, object] = {"kv_offload": "off"}
            yield stack.enter_context(deployment(checkpoint, port=0, grpc_port=0, **settings)), None
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        # The memory of the store would be a way past the proxy.
        flags = ("--shared-memory-path", "off") if name == "slow" else ()
        store = stack.enter_context(
            store_process(f"unix:{folder}/kv.sock", "--memory-size", "256MiB", *flags)
        )
        address = store.address
        if name == "slow":
            address = stack.enter_context(proxy(folder, f"{folder}/kv.sock"))
        cluster = stack.enter_context(
            deployment(checkpoint, port=0, grpc_port=0, kvstore=(address,))
        )
        yield cluster, store


def run(options: argparse.Namespace) -> None:
    """Take turns between all cases, and print medians of rates and of ratios within a turn."""
    rates: dict[str, list[float]] = {name: [] for name in options.cases}
    with contextlib.ExitStack() as stack:
        cells = {
            name: stack.enter_context(case(name, options.checkpoint)) for name in options.cases
        }
        for cluster, _ in cells.values():
            bench(cluster, options, seed=999)
        for name, (_, store) in cells.items():
            if store is not None and name == "stopped":
                store.signal(signal.SIGSTOP)
            elif store is not None and name == "killed":
                store.end()
        for turn in range(options.rounds):
            order = list(options.cases)
            random.Random(turn).shuffle(order)
            for name in order:
                rates[name].append(bench(cells[name][0], options, seed=turn))
    print(
        f"| store | output tokens/s, median of {options.rounds} | ratio in a turn (least to most) |"
    )
    print("| --- | --- | --- |")
    for name in options.cases:
        ratios = [mine / none for mine, none in zip(rates[name], rates["none"], strict=True)]
        print(
            f"| {name} | {statistics.median(rates[name]):.1f} | {statistics.median(ratios):.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f}) |"
        )


def bench(cluster: LocalCluster, options: argparse.Namespace, seed: int) -> float:
    """Return output tokens per second of `pagewire bench`; every request must have ended well."""
    command = [sys.executable, "-m", "pagewire", "bench", "--json", "--seed", str(seed)]
    command += ["--base-url", str(cluster.http_url), "--num-prompts", str(options.num_prompts)]
    command += ["--max-concurrency", str(options.concurrency)]
    command += ["--input-len", str(options.input_len), "--output-len", str(options.output_len)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    return float(report["output_tokens_per_second"])
