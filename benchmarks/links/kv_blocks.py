"""What TLS and seals cost KV blocks: MB/s of put and get of a store over TCP of this machine.

    python benchmarks/links/kv_blocks.py [--repeats 7] [--size 1048576]

A worker's own connector puts and gets 64 blocks, in turns in the clear, with TLS, and with seals.
Results are in docs/performance.md.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Final

from tls_cost import free_port

from pagewire_shared.rpc import links
from pagewire_shared.security.roles import LinkRole
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload.connector import BlockLayout, KvConnector, OutgoingBlock
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from pagewire_worker.offload.sealed_connector import SealedConnector

NUM_BLOCKS: Final = 64
AT_A_TIME: Final = 8
SECONDS: Final = 60.0
KEY: Final = bytes(range(32))
CASES: Final = ("in the clear", "TLS", "seals", "TLS and seals")


class Settings:
    """Links of this process, in the clear or with a worker's certificate."""

    insecure = False

    def __init__(self, folder: Path | None) -> None:
        self.tls_dir = None if folder is None else str(folder)


def start_store(stack: ExitStack, folder: Path | None) -> str:
    """Start a store that shares no memory; return its address."""
    address = f"127.0.0.1:{free_port()}"
    words = ["--listen", address, "--memory-size", "1GiB", "--shared-memory-path", "off"]
    if folder is not None:
        words += ["--tls-dir", str(folder)]
    process = subprocess.Popen([sys.executable, "-m", "pagewire", "kvstore", *words])
    stack.callback(process.wait)
    stack.callback(process.kill)
    return address


def wait_listening(address: str) -> None:
    host, _, port = address.partition(":")
    until = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection((host, int(port)), 1.0).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


async def measure(address: str, size: int, *, is_sealed: bool) -> tuple[float, float]:
    """Return MB/s of put and of get."""
    group = CacheGroup(num_layers=1, block_size=16, bytes_per_block=size, dtype="bfloat16")
    layout = BlockLayout(os.urandom(32), b"n" * 32, (group,))
    connector: KvConnector = KvStoreConnector()
    if is_sealed:
        connector = SealedConnector(connector, [KEY])
    await connector.register(layout, [address])
    data = os.urandom(size)
    blocks = [OutgoingBlock(os.urandom(16), None, memoryview(data)) for _ in range(NUM_BLOCKS)]
    began, left = time.perf_counter(), blocks
    while left:
        held = await connector.put(left[:AT_A_TIME])
        left = [one for one in left if one.name not in held]
    put, began, count = time.perf_counter() - began, time.perf_counter(), 0
    names = [block.name for block in blocks]
    while count < NUM_BLOCKS:
        async with aclosing(connector.get(address, names[count:], SECONDS)) as loaded:
            async for _ in loaded:
                count += 1
    got = time.perf_counter() - began
    await connector.close()
    total = NUM_BLOCKS * size / 1e6
    return total / put, total / got


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--size", type=int, default=1024 * 1024)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        certificates = Path(name) / "certs"
        made = [sys.executable, "-m", "pagewire", "certs", "init", str(certificates)]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        clear = start_store(stack, None)
        secure = start_store(stack, certificates / LinkRole.KVSTORE)
        for address in (clear, secure):
            wait_listening(address)
        found: dict[str, list[tuple[float, float]]] = {case: [] for case in CASES}
        for _ in range(options.repeats):
            for case in CASES:
                has_tls = case.startswith("TLS")
                links.use(Settings(certificates / LinkRole.WORKER if has_tls else None))
                address = secure if has_tls else clear
                rates = asyncio.run(measure(address, options.size, is_sealed="seals" in case))
                found[case].append(rates)
        print("| | put, MB/s | of clear | get, MB/s | of clear |\n| --- | --- | --- | --- | --- |")
        for case in CASES:
            row = []
            for side in (0, 1):
                rate = statistics.median(one[side] for one in found[case])
                pairs = zip(found[case], found[CASES[0]], strict=True)
                ratio = statistics.median(one[side] / other[side] for one, other in pairs)
                row += [f"{rate:.0f}", f"{ratio:.2f}"]
            print(f"| {case} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
