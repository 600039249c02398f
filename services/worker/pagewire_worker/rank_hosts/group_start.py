"""Holds what hosts say to each other before a group starts: facts of a host, and the start."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pagewire_shared.process.metrics import package_version
from pagewire_shared.rpc.address import Address, parse_address
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cpu_kernels.build import source_hash
from pagewire_worker.parallel.rank_task import decode_config
from pagewire_worker.rank_hosts.handshake import HostRefusedError

PROTOCOL: Final = "pagewire-ranks-1"


def host_facts(index: int, num_hosts: int, listen: Address | None) -> dict[str, Any]:
    """Return the facts of a host that dials the first one.

    Args:
        listen: Where hosts with higher numbers reach it; None for a host that only dials.
    """
    return {
        "protocol": PROTOCOL,
        "version": package_version(),
        "kernels": source_hash(),
        "hosts": num_hosts,
        "host": index,
        "listen": "" if listen is None else str(listen),
    }


def why_refused(facts: Mapping[str, Any], num_hosts: int) -> str | None:
    """Return what keeps a host with these facts out of a group; None if nothing does."""
    own = host_facts(0, num_hosts, None)
    for name in ("protocol", "version", "kernels", "hosts"):
        if facts.get(name) != own[name]:
            return f"{name}: {str(facts.get(name))[:80]}, the worker of the group has {own[name]}"
    index = facts.get("host")
    if not isinstance(index, int) or not 1 <= index < num_hosts:
        return f"host: {str(index)[:80]} is not from 1 to {num_hosts - 1}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStart:
    """The first host's word to the others that all are there.

    Attributes:
        config: Of every rank.
        generation: Random name of this start of the group.
        num_bytes, slot_bytes: Of the memory that the ranks of each host share.
        hosts: Where the others listen, by number; empty for those who dial only.
    """

    config: WorkerConfig
    generation: str
    num_bytes: int
    slot_bytes: int
    hosts: tuple[str, ...]

    def encode(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def decode(cls, message: Mapping[str, Any]) -> "GroupStart":
        """Return what `encode` made. Raises HostRefusedError if it is something else."""
        try:
            content = dict(message)
            config = decode_config(content.pop("config"))
            hosts = tuple(str(one) for one in content.pop("hosts"))
            return cls(config=config, hosts=hosts, **content)
        except (KeyError, TypeError, ValueError) as error:
            raise HostRefusedError(f"its start of a group makes no sense: {error}") from error

    def address(self, host: int) -> Address:
        """Return where a host listens. Raises StartupError."""
        return parse_address(self.hosts[host], setting="hosts")
