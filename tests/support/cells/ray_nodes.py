"""Starts a cluster of Ray with two nodes on this machine. Needs an environment with Ray."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.processes.processes import children_of

NODE_CPUS = 1
"""So that a node has room for one host of ranks."""
ON_RAY = {
    "distributed_executor_backend": "ray",
    "rank_hosts": "2",
    "cpu_threads": "2",
    # Both nodes are this machine. By default it is the address of the node, which needs a word.
    "rank_listen": "127.0.0.1:0",
}
"""Flags of a worker whose ranks are on both nodes."""
_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # By default tasks have the niceness 15: the ranks of a worker would have unlike shares.
    "RAY_worker_niceness": "0",
}


@contextmanager
def ray_nodes(num_cpus: int = NODE_CPUS) -> Iterator[Any]:
    """Run the cluster, with `num_cpus` per node.

    Workers that are started meanwhile find it, and are on the first node.
    """
    from ray.cluster_utils import Cluster

    os.environ |= _VARIABLES
    node = {"num_cpus": num_cpus, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    node.pop("include_dashboard")
    cluster.add_node(**node)
    cluster.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        yield cluster
    finally:
        for name in (*_VARIABLES, "RAY_ADDRESS"):
            os.environ.pop(name)
        cluster.shutdown()


def ranks_of_tasks() -> list[int]:
    """Return the processes of ranks that tasks of Ray have started."""
    entries = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    tasks = [pid for pid in entries if _command(pid).startswith(b"ray::serve_host")]
    return [rank for task in tasks for rank in children_of(task)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
