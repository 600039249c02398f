"""Starts a group of ranks on several hosts, from the first one, which has the worker."""

import logging
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address
from pagewire_worker.config import WorkerConfig
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.rank_processes import SpawnedRanks
from pagewire_worker.parallel.rank_stacks import RankStacks
from pagewire_worker.parallel.shared_collectives import SharedCollectives
from pagewire_worker.rank_hosts.connections import HostListener, LinkTable
from pagewire_worker.rank_hosts.group_start import GroupStart, why_refused
from pagewire_worker.rank_hosts.handshake import (
    Facts,
    HostGoneError,
    HostRefusedError,
    accept,
    has_news,
    receive_message,
    refuse,
    send_message,
)
from pagewire_worker.rank_hosts.layout import HostLayout

GATHER_SECONDS: Final = 600.0
"""Until all hosts are there; an orchestrator may start them one after the other."""

_LOOK_SECONDS: Final = 0.2

_logger = logging.getLogger(__name__)


class HostLauncher(Protocol):
    """Starts the processes of the other hosts, where no orchestrator does."""

    def start(self, leader: Address, key: bytes, num_hosts: int) -> None:
        """Start them; they dial `leader`. Raises StartupError."""
        ...

    def ended(self) -> tuple[int, str] | None:
        """Return a host whose process has ended, and how; None while all run."""
        ...

    def close(self) -> None:
        """End them."""
        ...


@dataclass(frozen=True, slots=True)
class HostControl:
    """The connection to the process that starts the ranks of another host."""

    peer: socket.socket
    listen: str
    name: str

    def ended(self, ranks: range) -> Mapping[int, str]:
        """Return which `ranks` of this host have ended since the last call, and how."""
        if not has_news(self.peer):
            return {}
        try:
            message, _ = receive_message(self.peer, time.monotonic() + _LOOK_SECONDS)
            return {int(message["rank"]): f"{message['how']} on {self.name}"}
        except (HostGoneError, HostRefusedError, KeyError, TypeError, ValueError):
            return dict.fromkeys(ranks, f"the connection to {self.name} has ended")


def reached_at(facts: Facts, seen: str) -> str:
    """Return where others reach a host: where it listens, or if that is everywhere, at `seen`."""
    listen = str(facts.get("listen", ""))
    host, _, port = listen.rpartition(":")
    return str(Address(seen, int(port))) if host in ("0.0.0.0", "[::]") else listen


class HostedRanks:
    """The processes of ranks on all hosts: RankProcesses.

    Args:
        config: Of the ranks of this host; `elsewhere` those of others, with names of the model that
            other hosts understand.
        listener: Where the other hosts dial in; closed once all are there.
        launcher: Starts them; None if an orchestrator does.

    Attributes:
        links: None: they pass files on, which no other host has.
    """

    def __init__(
        self,
        *,
        config: WorkerConfig,
        elsewhere: WorkerConfig,
        memory: GroupMemory,
        collectives: SharedCollectives,
        listener: HostListener,
        key: bytes,
        launcher: HostLauncher | None,
    ) -> None:
        self._config = config
        self._elsewhere = elsewhere
        self._memory = memory
        self._collectives = collectives
        self._listener = listener
        self._key = key
        self._launcher = launcher
        self._layout = HostLayout(config.num_ranks, config.rank_hosts)
        self._controls: dict[int, HostControl] = {}
        self._ended: dict[int, str] = {}
        self._local: SpawnedRanks | None = None
        self.links: Sequence[socket.socket] = ()

    def start(self) -> None:
        """Wait for the other hosts, join them, and start the ranks of this one.

        Raises:
            StartupError: They do not come, or cannot be reached.
        """
        generation, links = secrets.token_hex(16), LinkTable(self._layout, 0)
        try:
            if self._launcher is not None:
                where = self._listener.address
                self._launcher.start(where, self._key, self._layout.num_hosts)
            self._gather()
            self._send_start(generation)
            links.collect(self._listener, self._controls, generation)
        except (HostGoneError, HostRefusedError) as error:
            links.close()
            raise StartupError(f"a group on several hosts cannot start: {error}") from error
        finally:
            self._listener.close()
        of_rank = dict(links.links())
        for link in of_rank.pop(0):
            ranks = range(link.first, link.first + link.size)
            self._collectives.join_host(link.fd, ranks, link.peer)
        ranks = self._layout.ranks_of(0)[1:]
        self._local = SpawnedRanks(self._config, self._memory.file, ranks, host_links=of_rank)
        self._local.start()

    def _gather(self) -> None:
        """Wait until all other hosts have dialled in. Raises StartupError."""
        missing = set(range(1, self._layout.num_hosts))
        deadline = time.monotonic() + GATHER_SECONDS
        _logger.info(
            "waiting at %s for hosts of ranks: %s", self._listener.address, sorted(missing)
        )
        while missing:
            if time.monotonic() > deadline:
                raise StartupError(
                    f"hosts {sorted(missing)} of {self._layout.num_hosts} have not come to"
                    f" {self._listener.address} in {GATHER_SECONDS:.0f} s",
                    field="rank_hosts",
                )
            self._check_launched()
            missing.discard(self._admit())

    def _admit(self) -> int:
        """Take in one host, and return its number; 0 if none comes."""
        found = self._listener.next_host(_LOOK_SECONDS)
        if found is None:
            return 0
        peer, facts = found
        try:
            reason = why_refused(facts, self._layout.num_hosts)
            if reason is not None:
                refuse(peer, reason)
            accept(peer)
        except (HostRefusedError, HostGoneError) as error:
            _logger.warning("a host of ranks is refused: %s", error)
            peer.close()
            return 0
        index, seen = int(facts["host"]), peer.getpeername()[0]
        if index in self._controls:
            # It has started again meanwhile.
            self._controls[index].peer.close()
        name = f"host {index} ({seen})"
        self._controls[index] = HostControl(peer, reached_at(facts, seen), name)
        _logger.info("%s has come", name)
        return index

    def _check_launched(self) -> None:
        ended = None if self._launcher is None else self._launcher.ended()
        if ended is not None:
            raise StartupError(f"host {ended[0]} of ranks has not started: {ended[1]}")

    def _send_start(self, generation: str) -> None:
        others = [self._controls[host].listen for host in sorted(self._controls)]
        start = GroupStart(
            config=self._elsewhere,
            generation=generation,
            num_bytes=self._memory.file.num_bytes,
            slot_bytes=self._memory.slot_bytes,
            hosts=("", *others),
        )
        for control in self._controls.values():
            send_message(control.peer, start.encode())

    def stacks(self) -> list[RankStacks]:
        """Return where the code of the other ranks of this host is."""
        return [] if self._local is None else self._local.stacks()

    def ended(self) -> tuple[int, str] | None:
        """Return a rank whose process or host has ended, and how; None while all run.

        Where one is lost, others end because of it, so that only its own end is returned.
        """
        found = None if self._local is None else self._local.ended()
        if found is not None:
            self._ended.setdefault(*found)
        for host, control in self._controls.items():
            # The first reason stays.
            self._ended = {**control.ended(self._layout.ranks_of(host)), **self._ended}
        lost = self._collectives.lost
        if lost is None:
            return next(iter(self._ended.items()), None)
        return (lost, self._ended[lost]) if lost in self._ended else None

    def close(self) -> None:
        """End all of them: those of this host at once, the others by the end of the group."""
        if self._local is not None:
            self._local.close()
        for control in self._controls.values():
            control.peer.close()
        if self._launcher is not None:
            self._launcher.close()
