"""Starts the other hosts of a group as tasks of a Ray cluster, one on each node.

Ray places and starts them and notices lost nodes, too; what ranks send each other does not pass
through Ray. It is imported here alone.
"""

import contextlib
import importlib
import logging
import os
import threading
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address, parse_address
from pagewire_worker.config import WorkerConfig
from pagewire_worker.rank_hosts.follower import HostFollower

PLACE_SECONDS: Final = 60.0
"""For nodes with room; a cluster that scales may have to start them."""

_NODE_LABEL: Final = "ray.io/node-id"

_logger = logging.getLogger(__name__)


class RayHosts:
    """A HostLauncher. Host 0 is the node of this process.

    Raises:
        StartupError: Ray is not installed, or no cluster is there.
    """

    def __init__(self, config: WorkerConfig) -> None:
        try:
            ray: Any = importlib.import_module("ray")
            strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        except ModuleNotFoundError as error:
            raise StartupError(
                "--distributed-executor-backend: the package ray is not installed; pip install"
                " 'pagewire[ray]' brings it",
                field="distributed_executor_backend",
            ) from error
        self._ray = ray
        self._strategies = strategies
        self._cpus = max(1, (config.cpu_threads or 1) * config.ranks_here)
        # Stages meet seldom, so their nodes may be apart; ranks of a stage meet in each layer.
        self._strategy = "STRICT_SPREAD" if config.pipeline_parallel_size > 1 else "PACK"
        self._group: Any = None
        self._tasks: dict[int, Any] = {}
        self._has_connected = not ray.is_initialized()
        if self._has_connected:
            self._connect()

    @property
    def node_address(self) -> str:
        """The address of this node."""
        found: str = self._ray.util.get_node_ip_address()
        return found

    def _connect(self) -> None:
        try:
            self._ray.init(
                address=os.environ.get("RAY_ADDRESS", "auto"),
                configure_logging=False,
                log_to_driver=False,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise StartupError(
                "--distributed-executor-backend: ray finds no cluster (`ray start`, or"
                f" RAY_ADDRESS): {error}",
                field="distributed_executor_backend",
            ) from error

    def start(self, leader: Address, key: bytes, num_hosts: int) -> None:
        """Place the hosts, and start those behind the first. Raises StartupError."""
        ray = self._ray
        own = {_NODE_LABEL: ray.get_runtime_context().get_node_id()}
        self._group = ray.util.placement_group(
            [{"CPU": self._cpus}] * num_hosts,
            strategy=self._strategy,
            bundle_label_selector=[own, *[{}] * (num_hosts - 1)],
        )
        if not self._group.wait(PLACE_SECONDS):
            self.close()
            raise StartupError(
                f"--rank-hosts: Ray has no {num_hosts} nodes with {self._cpus} free CPUs each, this"
                f" one among them ({self._strategy})",
                field="rank_hosts",
            )
        task = ray.remote(max_retries=0)(serve_host)
        for index in range(1, num_hosts):
            where = self._strategies.PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=index
            )
            options = {"scheduling_strategy": where, "num_cpus": self._cpus}
            self._tasks[index] = task.options(**options).remote(str(leader), key, index, num_hosts)
        _logger.info("Ray has placed %d hosts of ranks, %s", num_hosts, self._strategy)

    def ended(self) -> tuple[int, str] | None:
        """Return a host whose task has ended, and how; None while all run."""
        for index, task in self._tasks.items():
            if self._ray.wait([task], timeout=0)[0]:
                try:
                    return index, str(self._ray.get(task))
                except self._ray.exceptions.RayError as error:
                    return index, " ".join(str(error).split())[-300:]
        return None

    def close(self) -> None:
        """Give the nodes back, which ends the tasks there, and leave the cluster."""
        if self._group is not None:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.util.remove_placement_group(self._group)
        if self._has_connected:
            # At its end the interpreter would wait half a second for more of Ray's log.
            self._ray.shutdown()
        self._group = None
        self._tasks = {}


def serve_host(leader: str, key: bytes, index: int, num_hosts: int) -> str:
    """Serve one start of a group, in a task of Ray; return why it has ended."""
    ray: Any = importlib.import_module("ray")
    follower = HostFollower(
        leader=parse_address(leader, setting="leader"),
        key=key,
        index=index,
        num_hosts=num_hosts,
        listen=Address(ray.util.get_node_ip_address(), 0),
        is_serving=threading.Event(),
        stop=threading.Event(),
    )
    return follower.follow()
