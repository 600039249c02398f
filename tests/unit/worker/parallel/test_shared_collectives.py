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
from pagewire_worker.parallel import shared_collectives
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.shared_collectives import SharedCollectives
from support.kernels.fused_kernels import needs_kernels

pytestmark = needs_kernels

SLOT_BYTES = 128
"""So few that most calls go in pieces."""


def view(
    memory: GroupMemory, rank: int, size: int, timeout_ms: int = 5000, num_stages: int = 1
) -> SharedCollectives:
    topology = RankTopology.of(rank, size // num_stages, num_stages)
    return SharedCollectives(memory, topology, timeout_ms)


def together(
    size: int, act: Callable[[SharedCollectives], Any], *, num_stages: int = 1, **changes: Any
) -> list[Any]:
    """Return the results of `act` in each rank, each in a thread."""
    memory = GroupMemory(size, slot_bytes=SLOT_BYTES, num_stages=num_stages)
    ranks = [view(memory, rank, size, num_stages=num_stages, **changes) for rank in range(size)]
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


def tree_sum(parts: list[torch.Tensor]) -> torch.Tensor:
    """Return the sum of neighbours, of neighbours of these, and so on; a last one waits."""
    while len(parts) > 1:
        pairs = [sum(parts[i : i + 2], torch.tensor(-0.0)) for i in range(0, len(parts), 2)]
        parts = pairs
    return parts[0]


@pytest.mark.parametrize("size", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_of_pairs_of_ranks(size: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(4)
    parts = [torch.randn(5, 33, generator=generator).to(dtype) * 3**rank for rank in range(size)]
    expected = tree_sum([part.float() for part in parts])

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


@pytest.mark.parametrize(("num_cores", "is_awake"), [(4, True), (3, False)])
def test_waits_stay_awake_where_cores_are_to_spare(
    num_cores: int, is_awake: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cores are for others: a wait that keeps its core spends time of the processor."""
    monkeypatch.setattr(shared_collectives, "num_physical_cores", lambda: num_cores)
    monkeypatch.setattr(shared_collectives, "AWAKE_SECONDS", 10.0)

    def act(rank: SharedCollectives) -> float:
        rank.use_spare_cores(2)
        if rank.topology.tp_rank == 0:
            time.sleep(0.3)
            rank.send(b"late")
            return 0.0
        began = time.thread_time()
        assert rank.receive() == b"late"
        return time.thread_time() - began

    spent = together(2, act)[1]
    # One that sleeps spends 50 us, and some more at each of its looks.
    assert (spent > 0.01) is is_awake


def test_states_go_from_stage_to_stage() -> None:
    """Of three stages of two ranks, each works on what it has while the next ones are behind."""
    generator = torch.Generator().manual_seed(4)
    steps = [torch.randn(size, 33, generator=generator).bfloat16() for size in (1, 7, 3, 20, 2, 9)]

    def act(rank: SharedCollectives) -> list[torch.Tensor]:
        place, kept = rank.topology, []
        for step in steps:
            states = torch.zeros_like(step)
            if place.is_first:
                states.copy_(step * (1 + place.tp_rank))
            else:
                rank.take(states)
                time.sleep(0.002)
            kept.append(rank.all_reduce(states.clone()))
            if not place.is_last:
                rank.pass_on(states)
        return kept

    for rank, kept in enumerate(together(6, act, num_stages=3)):
        for step, found in zip(steps, kept, strict=True):
            # Each rank has passed on its own, and sums are of the two ranks of a stage.
            assert torch.equal(found, (step.float() + (step * 2).float()).bfloat16()), rank


def test_all_ranks_of_all_stages_reply() -> None:
    """Also after stages have had different numbers of collectives."""

    def act(rank: SharedCollectives) -> tuple[list[int], bytes]:
        for _ in range(3 * rank.topology.stage):
            rank.all_reduce(torch.ones(5))
        replies = rank.gather_all(torch.tensor([10 * rank.topology.rank]))
        if rank.topology.rank == 0:
            rank.send(b"step")
        message = b"step" if rank.topology.rank == 0 else bytes(rank.receive())
        return [int(one) for one in replies], message

    assert together(4, act, num_stages=2) == [([0, 10, 20, 30], b"step")] * 4


def test_a_rank_of_another_stage_ends_waits_for_states() -> None:
    """A stage computes as long as it takes: only the end of a rank ends the wait for it."""

    def act(rank: SharedCollectives) -> object:
        if not rank.topology.is_first:
            return rank.take(torch.zeros(4))
        time.sleep(0.3)
        if rank.topology.tp_rank == 0:
            return None
        # The other one of its stage does not come.
        return rank.all_reduce(torch.ones(4))

    found = together(4, act, num_stages=2, timeout_ms=100)
    assert found[2] is None
    messages = [str(found[rank]) for rank in (0, 1, 3)]
    assert messages == ["rank 2 of the group is lost"] * 3


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
