"""A whole deployment on a tiny checkpoint, as the tests see it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagewire.config import config_from_keywords
from pagewire.local.child_process import LineReceived
from pagewire.local.cluster import LocalCluster
from pagewire.local.notices import Notice
from support.processes.processes import free_port

READY_SECONDS = 60.0

TINY = {
    "dtype": "float32",
    "max_num_seqs": 32,
    "max_num_batched_tokens": 128,
    "kv_cache_memory": "16MiB",
    "log_level": "warning",
}
"""Settings of every cluster here, unless a test gives others."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running deployment.

    Attributes:
        grpc_address: host:port of the public gRPC API.
        http_url: Base URL of the HTTP API, without /v1.
        model: Name of the first model.
        checkpoint: Its folder.
        local: The LocalCluster itself.
        notices: What it told its observer so far.
        reactions: Called with each notice on the thread of the supervisor, which waits.
    """

    grpc_address: str
    http_url: str
    model: str
    checkpoint: Path
    local: LocalCluster
    notices: list[Notice] = field(repr=False)
    reactions: list[Callable[[Notice], None]] = field(default_factory=list, repr=False)

    @property
    def processes(self) -> dict[str, list[int]]:
        """Process ids by role, as of now."""
        return {
            role: list(self.local.pids(role).values())
            for role in ("frontend", "scheduler", "worker", "kvstore")
        }

    @property
    def log(self) -> str:
        """What the processes wrote."""
        lines = [n for n in self.notices if isinstance(n, LineReceived)]
        return "\n".join(f"{line.name} | {line.text}" for line in lines)


MakeCluster = Callable[..., Cluster]


def start_cluster(
    checkpoint: Path,
    *,
    before_start: Callable[[LocalCluster], None] = lambda _: None,
    **settings: Any,
) -> Cluster:
    """Start a deployment and wait until it is ready; `before_start` may change its plan."""
    notices: list[Notice] = []
    reactions: list[Callable[[Notice], None]] = []

    def observe(notice: Notice) -> None:
        notices.append(notice)
        for react in reactions:
            react(notice)

    wanted = {"model": (str(checkpoint),), "port": free_port(), "grpc_port": free_port()}
    config = config_from_keywords({**TINY, **wanted, **settings}, {}).config
    local = LocalCluster(config, observer=observe)
    try:
        before_start(local)
        local.start()
        local.wait_ready(READY_SECONDS)
    except BaseException:
        local.stop()
        raise
    assert local.http_url is not None
    name = local.models[0].name
    address, url = local.grpc_address, local.http_url
    return Cluster(address, url, name, checkpoint, local, notices, reactions)
