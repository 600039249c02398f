"""Collectives through shared memory: order of sums, pieces, messages, and ranks that are lost."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pagewire_worker.backend.collectives import RankLostError, RankTopology
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.shared_collectives import SharedCollectives
from support.kernels.fused_kernels import needs_kernels

pytestmark = needs_kernels

SLOT_BYTES = 128
"""So few that most calls go in pieces."""


def view(memory: GroupMemory, rank: int, size: int, timeout_ms: int = 5000) -> SharedCollectives:
    return SharedCollectives(memory, RankTopology(rank, size), timeout_ms)


def together(size: int, act: Callable[[SharedCollectives], Any], **changes: Any) -> list[Any]:
    """Return the results of `act` in each rank, each in a thread."""
    memory = GroupMemory(size, slot_bytes=SLOT_BYTES)
    ranks = [view(memory, rank, size, **changes) for rank in range(size)]
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = act(ranks[rank])
        except RankLostError as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for one in ranks:
        one.close()
    memory.close_file()
    memory.unmap()
    return results


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_in_the_order_of_ranks(size: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(4)
    parts = [torch.randn(5, 33, generator=generator).to(dtype) * 10**rank for rank in range(size)]
    expected = parts[0].float()
    for part in parts[1:]:
        expected = expected + part.float()

    def act(rank: SharedCollectives) -> list[torch.Tensor]:
        place = rank.topology.tp_rank
        sums = []
        for turn in range(20):
            time.sleep(0.001 * ((place + turn) % size))
            sums.append(rank.all_reduce(parts[place].clone()))
        return sums

    for sums in together(size, act):
        for found in sums:
            assert torch.equal(found, expected.to(dtype))


def test_gather_and_broadcast() -> None:
    def act(rank: SharedCollectives) -> tuple[torch.Tensor, torch.Tensor]:
        own = torch.arange(40).view(8, 5) + 100 * rank.topology.tp_rank
        return rank.all_gather(own, 1), rank.broadcast(own.clone(), 1)

    first = torch.arange(40).view(8, 5)
    for gathered, given in together(3, act):
        assert torch.equal(gathered, torch.cat([first, first + 100, first + 200], 1))
        assert torch.equal(given, first + 100)


def test_messages_of_any_size_arrive_in_order() -> None:
    messages = [os.urandom(size) for size in (1, SLOT_BYTES - 8, SLOT_BYTES, 1000, 5000, 3)]

    def act(rank: SharedCollectives) -> list[bytes]:
        if rank.topology.tp_rank > 0:
            return [bytes(rank.receive()) for _ in messages]
        for message in messages:
            rank.send(message)
        return messages

    assert together(3, act) == [messages] * 3


def test_a_rank_that_does_not_come_is_named() -> None:
    def act(rank: SharedCollectives) -> object:
        return None if rank.topology.tp_rank == 1 else rank.all_reduce(torch.zeros(3))

    results = together(3, act, timeout_ms=100)
    assert results[1] is None
    assert [str(results[place]) for place in (0, 2)] == ["rank 1 of the group is lost"] * 2


def test_the_end_of_a_group_ends_its_waits() -> None:
    def act(rank: SharedCollectives) -> object:
        if rank.topology.tp_rank > 0:
            return rank.receive()
        time.sleep(0.05)
        rank.lose(2)
        return rank.lost

    lost, *others = together(3, act)
    assert lost == 2
    assert all(isinstance(other, RankLostError) for other in others)


@pytest.fixture
def child() -> Iterator[tuple[SharedCollectives, int]]:
    """Rank 0 of a group whose rank 1 is a process that sums for ever."""
    memory = GroupMemory(2, slot_bytes=SLOT_BYTES)
    pid = os.fork()
    if pid == 0:
        other = view(memory, 1, 2, 60_000)
        try:
            while other.lost is None:
                other.all_reduce(torch.ones(4))
        finally:
            os._exit(0)
    own = view(memory, 0, 2, 60_000)
    yield own, pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    own.close()
    memory.close_file()
    memory.unmap()


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGKILL, marks=pytest.mark.long), signal.SIGSTOP]
)
def test_a_process_that_stands_still_is_found(
    child: tuple[SharedCollectives, int], number: signal.Signals
) -> None:
    """Its heart does not beat any more; the wait has a minute left."""
    own, pid = child
    for _ in range(3):
        assert own.all_reduce(torch.ones(4)).tolist() == [2.0] * 4
    os.kill(pid, number)
    began = time.monotonic()
    with pytest.raises(RankLostError, match="rank 1 of the group is lost"):
        own.all_reduce(torch.ones(4))
        own.all_reduce(torch.ones(4))
    assert time.monotonic() - began < 5
    assert own.lost == 1
