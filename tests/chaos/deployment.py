"""The deployment that faults are injected into: every role more than once, a KV store with all its
tiers, and a link between each two processes."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc.aio

import pagewire
from chaos.links import Links
from chaos.preloaded import Preloaded
from pagewire.local.child_process import LineReceived
from support.cells.clusters import Cluster, start_cluster
from support.processes.redis_server import RedisServer
from support.traffic.streams import audit, eventually_clean

SETTLED_SECONDS: Final = 90.0
NUM_FRONTENDS: Final = 3
BUILTIN: Final = Path(pagewire.__file__).parent
ADAPTER: Final = "storyteller"
TAKES_OVER: Final = "takes over as generation"
DISK_BYTES: Final = 24 << 20

_NO_ADAPTERS: Final[dict[str, Any]] = {"enable_lora": False, "lora_modules": ()}
FLAVOURS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"num_workers": 2},
    "split": {"prefill_workers": 2, "decode_workers": 1},
    "speculative": {
        "num_workers": 2,
        "speculative_config": '{"method": "ngram", "num_speculative_tokens": 4}',
    },
    "ranks": {"num_workers": 2, "tensor_parallel_size": 2, **_NO_ADAPTERS},
}
"""Settings of the workers, by name."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A running deployment, and what its faults are injected with.

    Attributes:
        disk: Folder of the store's blocks; a small file system of its own where that is possible.
        num_workers: Workers, of all roles.
    """

    cluster: Cluster
    links: Links
    preloaded: Preloaded
    redis: RedisServer
    disk: Path
    num_workers: int

    def pids(self, process: str) -> dict[str, int]:
        """Return the process ids of a kind by name: of a role, or "standby" for the scheduler that
        waits."""
        if process not in ("scheduler", "standby"):
            return self.cluster.local.pids(process)
        active = self.active_scheduler()
        found = self.cluster.local.pids("scheduler")
        return {
            name: pid for name, pid in found.items() if (name == active) is (process == "scheduler")
        }

    def active_scheduler(self) -> str:
        """Return the name of the scheduler that took over last."""
        for notice in reversed(self.cluster.notices):
            if isinstance(notice, LineReceived) and TAKES_OVER in notice.text:
                return notice.name
        raise AssertionError("no scheduler has taken over")

    async def settle(self) -> None:
        """Wait until every process is back and known."""
        async with asyncio.timeout(SETTLED_SECONDS):
            while not await self._is_whole():
                await asyncio.sleep(0.1)

    async def _is_whole(self) -> bool:
        if len(self.cluster.local.pids()) < len(self.cluster.local._specs):
            return False
        try:
            report = await audit(self.cluster.local.grpc_address)
        except (grpc.aio.AioRpcError, AssertionError):
            return False
        return len(report.workers) == self.num_workers and len(report.frontends) == NUM_FRONTENDS

    async def check_clean(self) -> None:
        """Fail unless the idle deployment holds nothing of its requests."""
        await eventually_clean(self.cluster.local.grpc_address, self.num_workers, SETTLED_SECONDS)


@contextmanager
def deployed(folder: Path, flavour: str) -> Iterator[Deployment]:
    """Start a deployment with the built-in model, and end it."""
    program = shutil.which("redis-server")
    assert program is not None, "redis-server is missing: make tools"
    settings = FLAVOURS[flavour]
    with ExitStack() as stack:
        links, preloaded = Links(), Preloaded(folder)
        stack.callback(links.close)
        redis = RedisServer(program, folder).start()
        stack.callback(redis.close)
        disk = stack.enter_context(_small_disk(folder))
        stack.enter_context(_environ(preloaded.environ))
        cluster = start_cluster(
            BUILTIN / "builtin_model",
            before_start=links.weave,
            frontends=NUM_FRONTENDS,
            standby_scheduler=True,
            dtype="bfloat16",
            kv_cache_memory=24 << 20,
            kvstore_memory=8 << 20,
            kvstore_disk_path=str(disk),
            kvstore_disk_size=DISK_BYTES // 2,
            kvstore_redis=redis.url,
            max_model_len=1024,
            log_level="info",
            **{**_ADAPTERS, **settings},
        )
        stack.callback(cluster.local.stop)
        num_workers = sum(settings.get(name, 0) for name in _COUNTS)
        yield Deployment(cluster, links, preloaded, redis, disk, num_workers)


_ADAPTERS: Final = {
    "enable_lora": True,
    "lora_modules": (f"{ADAPTER}={BUILTIN / 'builtin_adapter'}",),
}
_COUNTS: Final = ("num_workers", "prefill_workers", "decode_workers")


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    disk = folder / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False).returncode:
        yield disk
        return
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


@contextmanager
def _environ(more: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
