"""Starts the processes of an LLM and a client of them, and ends both."""

import sys

from pagewire.client.client import AsyncClient
from pagewire.client.loop_thread import LoopThread
from pagewire.config import ServeConfig
from pagewire.local.child_process import LineReceived
from pagewire.local.cluster import LocalCluster
from pagewire.local.notices import Notice
from pagewire.local.supervision import Restarting
from pagewire.offline.keyword_errors import in_keywords
from pagewire.offline.offline_batch import CONNECT_SECONDS


def start_local(
    config: ServeConfig, loop: LoopThread, *, has_http: bool
) -> tuple[LocalCluster, AsyncClient]:
    """Return the processes, which are ready, and a client on `loop`. Raises StartupError."""
    with in_keywords():
        cluster = LocalCluster(config, observer=_show, has_http=has_http)
    try:
        with in_keywords():
            cluster.start()
            cluster.wait_ready()
        return cluster, loop.run(_connect(cluster.grpc_address))
    except BaseException:
        cluster.stop()
        raise


def end_local(loop: LoopThread, client: AsyncClient, cluster: LocalCluster) -> None:
    """Close the client and end the processes."""
    loop.run(client.close())
    cluster.stop()


async def _connect(address: str) -> AsyncClient:
    client = AsyncClient(address)
    await client.wait_connected(CONNECT_SECONDS)
    return client


def _show(notice: Notice) -> None:
    match notice:
        case LineReceived(name, text):
            print(f"{name} | {text}", file=sys.stderr, flush=True)
        case Restarting(name, reason, _):
            print(f"pagewire: {name} ended ({reason}), restarting it", file=sys.stderr, flush=True)
