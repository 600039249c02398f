"""Collectives of ranks on several hosts: what one host has in memory comes to the others."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch

from pagewire_worker.backend.collectives import RankLostError, RankTopology
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.shared_collectives import SharedCollectives
from support.kernels.fused_kernels import needs_kernels

pytestmark = needs_kernels

SLOT_BYTES = 128
FRAME = struct.Struct("<IIQ")


class Hosts:
    """Ranks of several hosts as threads of this process; each host has memory of its own."""

    def __init__(self, size: int, num_hosts: int, num_stages: int = 1, slot_bytes: int = 128):
        self.per_host = size // num_hosts
        self.memories = [
            GroupMemory(size, slot_bytes=slot_bytes, num_stages=num_stages)
            for _ in range(num_hosts)
        ]
        self.ranks = [
            SharedCollectives(
                self.memories[rank // self.per_host],
                RankTopology.of(rank, size // num_stages, num_stages),
                5000,
            )
            for rank in range(size)
        ]
        for a, b in combinations(range(num_hosts), 2):
            for place in range(self.per_host):
                self.join(a * self.per_host + place, b * self.per_host + place)

    def join(self, a: int, b: int) -> None:
        ends = socket.socketpair()
        for end, own, other in ((ends[0], a, b), (ends[1], b, a)):
            first = other // self.per_host * self.per_host
            hosted = range(first, first + self.per_host)
            self.ranks[own].join_host(end.detach(), hosted, other)

    def close(self) -> None:
        for rank in self.ranks:
            rank.close()
        for memory in self.memories:
            memory.close_file()
            memory.unmap()


def together(hosts: Hosts, act: Callable[[SharedCollectives], Any]) -> list[Any]:
    results: list[Any] = [None] * len(hosts.ranks)

    def run(place: int) -> None:
        try:
            results[place] = act(hosts.ranks[place])
        except RankLostError as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(hosts.ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    hosts.close()
    return results


def everything(rank: SharedCollectives) -> list[Any]:
    """Use each collective, with sizes in pieces; return what came of them."""
    place, found = rank.topology, []
    generator = torch.Generator().manual_seed(place.rank)
    for size in (3, 7, 200):
        own = torch.randn(size, generator=generator) * 3**place.tp_rank
        if not place.is_first:
            rank.take(own)
        found.append(rank.all_reduce(own.clone()).tolist())
        if not place.is_last:
            rank.pass_on(own)
        found.append(rank.all_gather(own, 0).tolist())
        found.append(rank.broadcast(own.clone(), place.tp_size - 1).tolist())
        found.append([one.tolist() for one in rank.gather_all(torch.tensor([place.rank, size]))])
        for message in (b"a", bytes(range(200)) * 3):
            if place.rank == 0:
                rank.send(message)
            found.append(message if place.rank == 0 else bytes(rank.receive()))
    return found


@pytest.mark.parametrize(
    ("size", "num_hosts", "num_stages"),
    [(2, 2, 1), (4, 2, 1), (3, 3, 1), (2, 2, 2), (4, 2, 2), (6, 2, 3), (4, 4, 2), (8, 2, 1)],
)
def test_hosts_give_the_bits_of_one_host(size: int, num_hosts: int, num_stages: int) -> None:
    """Also where a stage lies in two hosts, and a host has parts of two stages."""
    expected = together(Hosts(size, 1, num_stages), everything)
    assert not any(isinstance(one, RankLostError) for one in expected)
    assert together(Hosts(size, num_hosts, num_stages), everything) == expected


def test_pieces_that_fill_a_socket_come_whole() -> None:
    parts = [torch.arange(3_000_000, dtype=torch.float32) * (1 + rank) for rank in range(2)]
    hosts = Hosts(2, 2, slot_bytes=4 << 20)
    for found in together(hosts, lambda rank: rank.all_reduce(parts[rank.topology.rank].clone())):
        assert torch.equal(found, parts[0] + parts[1])


def test_the_end_of_a_group_reaches_all_hosts() -> None:
    def act(rank: SharedCollectives) -> object:
        if rank.topology.rank != 1:
            return rank.all_reduce(torch.ones(4))
        time.sleep(0.05)
        rank.lose(1)
        return None

    found = together(Hosts(4, 4), act)
    assert [str(found[rank]) for rank in (0, 2, 3)] == ["rank 1 of the group is lost"] * 3


def alone() -> tuple[SharedCollectives, GroupMemory, socket.socket]:
    """Return rank 0 of two, its memory, and the other end of its connection to rank 1."""
    memory = GroupMemory(2, slot_bytes=SLOT_BYTES)
    own = SharedCollectives(memory, RankTopology(0, 2), 60_000)
    ours, theirs = socket.socketpair()
    own.join_host(ours.detach(), range(1, 2), 1)
    return own, memory, theirs


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        FRAME.pack(99, 0, 0),
        FRAME.pack(2, 1, SLOT_BYTES + 1),
        FRAME.pack(2, 1, 1 << 63),
        FRAME.pack(3, 1, 4),
        FRAME.pack(4, 1, 8),
        FRAME.pack(6, 1, 8),
        FRAME.pack(1, 0, 0),
        FRAME.pack(1, 3, 0),
        FRAME.pack(2, 1, 16) + b"short",
    ],
)
def test_frames_that_make_no_sense_end_the_group(sent: bytes) -> None:
    """An unknown kind, too many bytes, no stages, another's word, no such rank, or an early end."""
    own, memory, peer = alone()
    peer.sendall(sent)
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(RankLostError, match="rank 1 of the group is lost"):
        own.all_reduce(torch.ones(4))
    # What the other host gets last is the end, with the rank.
    received = bytearray()
    while chunk := peer.recv(4096):
        received += chunk
    assert FRAME.pack(1, 2, 0) in received
    own.close()
    peer.close()
    memory.close_file()
    memory.unmap()


def test_a_host_that_falls_silent_is_lost() -> None:
    own, memory, peer = alone()
    peer.sendall(FRAME.pack(0, 0, 0))
    began = time.monotonic()
    with pytest.raises(RankLostError, match="rank 1 of the group is lost"):
        own.all_reduce(torch.ones(4))
    assert time.monotonic() - began < 5
    own.close()
    peer.close()
    memory.close_file()
    memory.unmap()


def test_a_host_that_reads_nothing_holds_nobody() -> None:
    """A rank that writes ends its wait with the group, and the beat of its host goes on."""
    own, memory, peer = alone()
    peer.sendall(FRAME.pack(0, 0, 0))
    with pytest.raises(RankLostError, match="rank 1 of the group is lost"):
        for _ in range(100):
            own.broadcast(torch.zeros(1 << 20), 0)
            peer.sendall(FRAME.pack(2, 1, 0))
            own.send(os.urandom(1 << 16))
    own.close()
    peer.close()
    memory.close_file()
    memory.unmap()
