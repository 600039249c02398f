"""KV stores and Redis servers as processes that tests kill, stop and start again."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc.aio

from pagewire_protos.kvstore.v1 import kv_store_pb2, kv_store_pb2_grpc
from pagewire_shared.process.allocator import with_allocator_settings
from support.processes.processes import wait_until
from support.processes.redis_server import listens
from support.tools import tool

START_SECONDS = 30.0
NAME_BYTES = 16


class _Process:
    """A process that can be paused; a context manager that leaves nothing behind."""

    process: subprocess.Popen[str]

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9 whatever still runs, and wait for the end."""
        self.process.kill()
        self._finish()

    def _finish(self) -> int:
        status = self.process.wait(20)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        return status

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.kill()


class RedisServer(_Process):
    """A Redis that keeps nothing on disk, on a Unix socket."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.socket = folder / "redis.sock"
        self.socket.unlink(missing_ok=True)
        self.url = f"unix://{self.socket}"
        self.process = subprocess.Popen(
            [
                *(
                    tool("redis-server", "make tools"),
                    "--port",
                    "0",
                    "--unixsocket",
                    str(self.socket),
                ),
                *("--save", "", "--appendonly", "no", "--dir", str(folder), *flags),
            ],
            stdout=subprocess.DEVNULL,
            text=True,
        )
        wait_until(lambda: listens(self.socket), START_SECONDS, "redis-server listens")


class KvStore(_Process):
    """A `python -m pagewire_kvstore` on a Unix socket in `folder`; started again by `start`."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.address = f"unix:{folder / 'kvstore.sock'}"
        self.flags = flags
        self.start()

    def start(self, flags: Sequence[str] | None = None) -> None:
        """Start a process where none runs, and wait until it is ready."""
        self.flags = self.flags if flags is None else tuple(flags)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "pagewire_kvstore", "--listen", self.address),
                *("--exit-with-parent", "--log-level", "warning", *self.flags),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # gRPC's own log writes what damage left of a header as it came.
            errors="backslashreplace",
            env=with_allocator_settings(os.environ, "kvstore"),
        )
        self._log: list[str] = []
        threading.Thread(target=self._read_log, daemon=True).start()
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if json.loads(line)["pagewire"] == "ready":
                return
        raise AssertionError("the store ended: " + self.log)

    @property
    def log(self) -> str:
        """What it wrote to standard error since it was started."""
        return "".join(self._log)

    def stop(self) -> int:
        """SIGTERM; return the exit status."""
        self.process.terminate()
        return self._finish()

    def _read_log(self) -> None:
        log, stream = self._log, self.process.stderr
        assert stream is not None
        with stream:
            log.extend(stream)


async def listed_names(address: str) -> set[bytes]:
    """Return the names of a store's blocks, as a watcher that begins now is told them."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = kv_store_pb2_grpc.KvStoreServiceStub(channel)
        stats = await stub.Stats(kv_store_pb2.StatsRequest())
        names: set[bytes] = set()
        if not any(tier.num_blocks for tier in stats.tiers):
            return names
        call = stub.WatchBlocks(kv_store_pb2.WatchBlocksRequest())
        try:
            async with asyncio.timeout(0.5):
                async for event in call:
                    names |= _names(event.stored.names)
                    names -= _names(event.removed.names)
        except TimeoutError:
            pass
        finally:
            call.cancel()
        return names


async def tier_stats(address: str) -> dict[str, kv_store_pb2.TierStats]:
    """Return a store's statistics by tier."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = kv_store_pb2_grpc.KvStoreServiceStub(channel)
        stats = await stub.Stats(kv_store_pb2.StatsRequest())
        return {tier.tier: tier for tier in stats.tiers}


def wait_for_blocks(address: str, count: int, tier: str = "memory") -> None:
    """Wait until a tier holds that many blocks."""

    def is_there() -> bool:
        stats = asyncio.run(tier_stats(address))
        return tier in stats and stats[tier].num_blocks >= count

    wait_until(is_there, START_SECONDS, f"{count} blocks in {tier}")


def _names(data: bytes) -> set[bytes]:
    return {data[at : at + NAME_BYTES] for at in range(0, len(data), NAME_BYTES)}
