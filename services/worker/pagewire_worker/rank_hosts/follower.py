"""Starts the ranks of a host behind the first: dials the worker, and again after each end.

Imports no torch: only the processes of ranks have it.
"""

import asyncio
import contextlib
import logging
import socket
import threading
import time
from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import PagewireError
from pagewire_shared.process.process import ProcessContext
from pagewire_shared.rpc.address import Address, parse_address
from pagewire_shared.rpc.server import RpcServer, start_server
from pagewire_worker.config import WorkerConfig
from pagewire_worker.parallel.memory_file import MemoryFile
from pagewire_worker.parallel.rank_processes import SpawnedRanks
from pagewire_worker.rank_hosts.connections import HostListener, LinkTable, dial
from pagewire_worker.rank_hosts.group_start import GroupStart, host_facts
from pagewire_worker.rank_hosts.handshake import (
    HostGoneError,
    has_news,
    receive_message,
    send_message,
)
from pagewire_worker.rank_hosts.layout import HostLayout
from pagewire_worker.rank_hosts.lws import PodPlace, leader_address
from pagewire_worker.rank_hosts.security import open_address, rank_key

DIAL_AGAIN_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.02
STOP_GRACE_SECONDS: Final = 1.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFollower:
    """One host of a group, but the first.

    Attributes:
        leader: Where the first host listens.
        listen: Where this one listens for hosts with higher numbers.
        is_serving: Set while it has a group.
        stop: Ends it.
    """

    leader: Address
    key: bytes
    index: int
    num_hosts: int
    listen: Address
    is_serving: threading.Event
    stop: threading.Event

    def follow(self) -> str:
        """Serve one start of the group, in this thread; return why that has ended.

        Raises:
            HostGoneError: The first host is not there.
            HostRefusedError: It does not take this one.
        """
        with contextlib.ExitStack() as stack:
            listener = None
            if self.index + 1 < self.num_hosts:
                listener = HostListener(self.listen, self.key)
                stack.callback(listener.close)
            where = None if listener is None else listener.address
            facts = host_facts(self.index, self.num_hosts, where)
            control = stack.enter_context(dial(self.leader, self.key, facts))
            _logger.info("host %d of ranks waits for its group at %s", self.index, self.leader)
            start = self._await_start(control)
            ranks = self._spawned(start, listener)
            ranks.start()
            stack.callback(ranks.close)
            self.is_serving.set()
            stack.callback(self.is_serving.clear)
            return self._watch(ranks, control)

    def _await_start(self, control: socket.socket) -> GroupStart:
        while not self.stop.is_set():
            if has_news(control, 10 * POLL_SECONDS):
                message, _ = receive_message(control, time.monotonic() + STOP_GRACE_SECONDS)
                return GroupStart.decode(message)
        raise HostGoneError("this process stops")

    def _spawned(self, start: GroupStart, listener: HostListener | None) -> SpawnedRanks:
        """Join the other hosts, and return the ranks of this one."""
        layout = HostLayout(start.config.num_ranks, self.num_hosts)
        table = LinkTable(layout, self.index)
        try:
            for host in range(self.index):
                where = start.address(host) if host else self.leader
                table.dial(host, where, self.key, start.generation)
            if listener is not None:
                hosts = range(self.index + 1, self.num_hosts)
                table.collect(listener, hosts, start.generation)
        except BaseException:
            table.close()
            raise
        links = table.links()
        memory = MemoryFile.new("pagewire-ranks", start.num_bytes, start.slot_bytes)
        ranks = layout.ranks_of(self.index)
        return SpawnedRanks(start.config, memory, ranks, host_links=links, host=self.index)

    def _watch(self, ranks: SpawnedRanks, control: socket.socket) -> str:
        """Wait for the end of a rank or of the group."""
        while not self.stop.is_set():
            found = ranks.ended()
            if found is not None:
                with contextlib.suppress(HostGoneError):
                    send_message(control, {"rank": found[0], "how": found[1]})
                return f"rank {found[0]}: {found[1]}"
            if has_news(control, POLL_SECONDS):
                return "the worker of the group has ended it"
        return "this process stops"


def serve_followed(follower: HostFollower) -> None:
    """Follow one start of the group after the other until `stop`. Raises HostRefusedError."""
    said = ""
    while not follower.stop.is_set():
        try:
            _logger.warning("the group of ranks has ended: %s", follower.follow())
            said = ""
        except HostGoneError as error:
            if str(error) != said:
                said = str(error)
                _logger.info("the worker of the group is not there yet: %s", said)
        follower.stop.wait(DIAL_AGAIN_SECONDS)


async def serve_pod(config: WorkerConfig, place: PodPlace, context: ProcessContext) -> None:
    """Serve the ranks of a pod that is not the first, until `context.stop`.

    Raises:
        StartupError: A setting is missing.
        HostRefusedError: The first pod does not take this one.
    """
    follower = HostFollower(
        leader=leader_address(config, place),
        key=rank_key(config),
        index=place.index,
        num_hosts=place.size,
        listen=open_address(config),
        is_serving=threading.Event(),
        stop=threading.Event(),
    )
    server = await _listen(config, context)
    try:
        # A thread of its own: the system ends the ranks with the thread that has started them.
        ended = asyncio.get_running_loop().create_future()
        _start_thread(follower, ended)
        stopped = asyncio.ensure_future(context.stop.wait())
        serving = asyncio.ensure_future(_show(server, follower, context))
        await asyncio.wait((ended, stopped, serving), return_when=asyncio.FIRST_COMPLETED)
        for one in (stopped, serving):
            one.cancel()
        if ended.done():
            await ended
    finally:
        follower.stop.set()
        if server is not None:
            await server.stop(STOP_GRACE_SECONDS)


def _start_thread(follower: HostFollower, ended: "asyncio.Future[None]") -> None:
    loop = asyncio.get_running_loop()

    def run() -> None:
        error: BaseException | None = None
        try:
            serve_followed(follower)
        except PagewireError as found:
            error = found
        except Exception as found:  # noqa: BLE001 - it ends the process, by name
            error = PagewireError(f"{type(found).__name__}: {found}")

        def finish() -> None:
            if ended.done():
                return
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)

        loop.call_soon_threadsafe(finish)

    threading.Thread(target=run, name="ranks", daemon=True).start()


async def _listen(config: WorkerConfig, context: ProcessContext) -> RpcServer | None:
    """Answer health checks at --listen, as a worker does."""
    if config.listen is None:
        return None
    address = parse_address(config.listen, setting="--listen")
    server = await start_server(address, lambda made: None, (), setting="--listen")
    context.status.report("listening", address=str(server.address))
    await server.set_started()
    return server


async def _show(server: RpcServer | None, follower: HostFollower, context: ProcessContext) -> None:
    """Be ready while there is a group. Runs until cancelled."""
    is_serving = False
    while True:
        if follower.is_serving.is_set() is not is_serving:
            is_serving = not is_serving
            context.status.report("ready" if is_serving else "loading")
            if server is not None:
                await server.set_serving(is_serving)
        await asyncio.sleep(10 * POLL_SECONDS)
