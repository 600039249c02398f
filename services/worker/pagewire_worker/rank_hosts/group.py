"""Puts together what starts the ranks of a group on several hosts."""

import secrets

from pagewire_worker.config import WorkerConfig
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.rank_group import RankProcesses
from pagewire_worker.parallel.shared_collectives import SharedCollectives
from pagewire_worker.rank_hosts.connections import HostListener
from pagewire_worker.rank_hosts.leader import HostedRanks
from pagewire_worker.rank_hosts.ray_hosts import RayHosts
from pagewire_worker.rank_hosts.security import open_address, rank_key


def hosted_ranks(
    config: WorkerConfig,
    elsewhere: WorkerConfig,
    memory: GroupMemory,
    collectives: SharedCollectives,
) -> RankProcesses:
    """Return the processes of all ranks but 0, as --distributed-executor-backend starts them.

    Args:
        config: Of the ranks of this host; `elsewhere` those of others.

    Raises:
        StartupError: A setting is missing, or the port is taken.
    """
    if config.distributed_executor_backend == "ray":
        launcher = RayHosts(config)
        address = open_address(config, f"{launcher.node_address}:0")
        # Ray brings it to the others.
        key = secrets.token_bytes(32)
    else:
        launcher, key, address = None, rank_key(config), open_address(config)
    return HostedRanks(
        config=config,
        elsewhere=elsewhere,
        memory=memory,
        collectives=collectives,
        listener=HostListener(address, key),
        key=key,
        launcher=launcher,
    )
