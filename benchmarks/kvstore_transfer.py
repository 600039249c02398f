"""GB/s of put and get by transport and size of a block, through the worker's own connector."""

import argparse
import asyncio
import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import numpy as np
import raw_grpc
import uvloop
from parts import raw_transfer
from parts.no_checksums import PROGRAM, no_checksums
from parts.store_process import store_process

from pagewire_shared.process.allocator import with_allocator_settings
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload.block_offloader import STAGING_BYTES
from pagewire_worker.offload.connector import BlockLayout, OutgoingBlock
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from pagewire_worker.offload.put_sender import MAX_BATCHES, NUM_PUTS

REGION_BYTES = raw_transfer.REGION_BYTES
PUT_BYTES = MAX_BATCHES * STAGING_BYTES
"""What a worker puts at a time when its store is the bottleneck."""
KIB = 1024
_MEMORY = ("--memory-size", "640MiB")


def add_arguments(parts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this part's arguments."""
    parser = parts.add_parser("transfer")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[64 * KIB, 256 * KIB, KIB * KIB, 4 * KIB * KIB]
    )
    parser.set_defaults(run=run)


def become_worker() -> None:
    """Start this process again as a launcher starts a worker, unless it was."""
    environ = with_allocator_settings(os.environ, "worker")
    if environ != os.environ:
        os.execve(sys.executable, sys.orig_argv, environ)


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    repeats = options.repeats
    print(f"{REGION_BYTES >> 20} MiB each time, {repeats} times; GB/s best (median)")
    print("| what | block | put | get |")
    print("| --- | --- | --- | --- |")
    print(f"| memcpy | - | {_shown(raw_transfer.memcpy(repeats))} | - |")
    print(f"| CRC-32C | 1 MiB | {_shown(raw_transfer.checksum(repeats))} | - |")
    print(f"| raw TCP, 1 MiB pieces | - | {_shown(raw_transfer.tcp(repeats))} | - |")
    print(f"| gRPC alone, 1 MiB messages | - | {_shown(raw_grpc.stream(repeats))} | - |")
    with tempfile.TemporaryDirectory() as folder:
        for name, listen, flags in (
            ("gRPC over TCP", "127.0.0.1:0", ("--shared-memory-path", "off")),
            (
                "gRPC over a Unix socket",
                f"unix:{folder}/kv.sock",
                ("--shared-memory-path", "off"),
            ),
            ("shared memory", f"unix:{folder}/kv.sock", ()),
        ):
            for size in options.sizes:
                with store_process(listen, *_MEMORY, *flags) as store:
                    _print_row(name, size, repeats, store.address)
            with (
                store_process(listen, *_MEMORY, *flags, program=PROGRAM) as store,
                no_checksums(),
            ):
                _print_row(f"{name}, no checksums", KIB * KIB, repeats, store.address)


def _print_row(name: str, size: int, repeats: int, address: str) -> None:
    put, get = uvloop.run(_measure(address, size, repeats))
    print(f"| {name} | {size >> 10} KiB | {_shown(put)} | {_shown(get)} |", flush=True)


def _shown(measured: tuple[float, float]) -> str:
    return f"{measured[0]:.2f} ({measured[1]:.2f})"


async def _measure(
    address: str, size: int, repeats: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Put a region and get it back, each time under new names."""
    source = np.random.default_rng(1).integers(0, 255, REGION_BYTES, np.uint8)
    connector = KvStoreConnector()
    layout = BlockLayout(b"m" * 32, b"n" * 32, (CacheGroup(1, 16, size, "float32"),))
    await connector.register(layout, [address])
    puts, gets = [], []
    try:
        for repeat in range(repeats + 1):
            names = [
                hashlib.sha256(b"%d %d" % (repeat, index)).digest()[:16]
                for index in range(REGION_BYTES // size)
            ]
            puts.append(await _put(connector, names, source, size))
            # The first one warms up, and is looked at.
            expected = source if repeat == 0 else None
            gets.append(await _get(connector, address, names, size, expected))
    finally:
        await connector.close()
    return _rates(puts[1:]), _rates(gets[1:])


def _rates(seconds: Sequence[float]) -> tuple[float, float]:
    return (
        REGION_BYTES / min(seconds) / 1e9,
        REGION_BYTES / statistics.median(seconds) / 1e9,
    )


async def _put(
    connector: KvStoreConnector, names: Sequence[bytes], source: np.ndarray, size: int
) -> float:
    view = memoryview(source).cast("B")
    per_put = max(1, PUT_BYTES // size)
    firsts = iter(range(0, len(names), per_put))

    async def send() -> None:
        for first in firsts:
            blocks = [
                OutgoingBlock(name, None, view[index * size : (index + 1) * size])
                for index, name in enumerate(names[first : first + per_put], first)
            ]
            stored = await connector.put(blocks)
            if len(stored) != len(blocks):
                raise SystemExit(f"only {len(stored)} of {len(blocks)} blocks were stored")

    begun = time.perf_counter()
    await asyncio.gather(*(send() for _ in range(NUM_PUTS)))
    return time.perf_counter() - begun


async def _get(
    connector: KvStoreConnector,
    address: str,
    names: Sequence[bytes],
    size: int,
    expected: np.ndarray | None,
) -> float:
    """Seconds until all payloads were in this process's own memory, verified by the connector."""
    at = 0
    begun = time.perf_counter()
    async for block in connector.get(address, names, 60.0):
        if expected is not None and not np.array_equal(
            np.frombuffer(block.payload, np.uint8), expected[at : at + size]
        ):
            raise SystemExit("what came back is something else")
        at += len(block.payload)
    if at != REGION_BYTES:
        raise SystemExit(f"{at} bytes came of {REGION_BYTES}")
    return time.perf_counter() - begun
