"""Times what ranks do together, in processes of this machine: sums, against gloo's, and messages.

    python benchmarks/cpu/ranks.py [--ranks 2] [--kib 64] [--seqs 256]

Prints medians of one call in microseconds: a sum through shared memory, between hosts and by
torch.distributed's gloo, and the times from a batch of rank 0 until all other ranks have read it,
until they have decoded it, and until rank 0 has their answer. Ranks that wait sleep soon, or stay
awake as where cores are to spare. Between hosts, each rank has memory of its own and a loopback.
"""

import argparse
import mmap
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch
from torch import distributed

from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.messages import decode, decode_batch, encode_batch
from pagewire_worker.parallel.shared_collectives import AWAKE_SECONDS, SharedCollectives

TIMES = 2000
WARM_UP = 200
BLOCK_SIZE = 16
Seconds = npt.NDArray[np.float64]


def median_us(call: Callable[[], object]) -> float:
    """Return the median time of a call of all ranks."""
    seconds = []
    for _ in range(WARM_UP + TIMES):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[WARM_UP:]) * 1e6


def decode_of(num_seqs: int, seq_len: int = 1024) -> StepBatch:
    """Return a batch in which each sequence computes one token."""
    numbers = torch.arange(num_seqs)
    lengths = np.full(num_seqs, seq_len)
    tables = np.arange(num_seqs * (seq_len // BLOCK_SIZE)).reshape(num_seqs, -1)
    return StepBatch(
        token_ids=numbers,
        positions=numbers,
        slot_mapping=numbers,
        output_rows=numbers,
        attention=AttentionMetadata(np.arange(num_seqs + 1), lengths, tables),
        is_decode=True,
    )


def message_us(group: SharedCollectives, num_seqs: int, seen: Seconds) -> str:
    """Return the median times of a batch: until the last of the other ranks has read it, until it
    has decoded it, and until rank 0 has the sum by which they answer.

    Args:
        seen: When each rank had read and decoded it, in memory of all ranks, [ranks, 2].
    """
    answer, rank = torch.zeros(16), group.topology.tp_rank
    batch, times = decode_of(num_seqs), []

    def call() -> None:
        began = time.monotonic()
        if rank == 0:
            group.send(encode_batch(batch, BLOCK_SIZE))
        else:
            message = group.receive()
            seen[rank, 0] = time.monotonic()
            decode_batch(decode(message))
            seen[rank, 1] = time.monotonic()
        group.all_reduce(answer)
        times.append(seen[1:].max(axis=0) - began)

    whole = median_us(call)
    read, decoded = np.median(times[WARM_UP:], axis=0) * 1e6
    return f"read after {read:.0f} us, decoded after {decoded:.0f}, answered after {whole:.0f}"


Pairs = dict[tuple[int, int], tuple[socket.socket, socket.socket]]
"""Two ranks, the lower first, and their ends of a connection."""


def connected(num_ranks: int) -> Pairs:
    """Return a connection over loopback between any two ranks."""
    pairs: Pairs = {}
    with socket.create_server(("127.0.0.1", 0)) as server:
        for pair in combinations(range(num_ranks), 2):
            one = socket.create_connection(server.getsockname())
            other, _ = server.accept()
            for end in (one, other):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pairs[pair] = one, other
    return pairs


def on_hosts(rank: int, num_ranks: int, pairs: Pairs) -> SharedCollectives:
    """Return the view of a rank that is alone on its host."""
    group = SharedCollectives(GroupMemory(num_ranks), RankTopology(rank, num_ranks), 60_000)
    for (low, high), ends in pairs.items():
        if rank in (low, high):
            peer = high if rank == low else low
            end = ends[0] if rank == low else ends[1]
            group.join_host(end.detach(), range(peer, peer + 1), peer)
        else:
            for end in ends:
                end.close()
    return group


def run(
    memory: GroupMemory, pairs: Pairs, instants: Seconds, rank: int, options: argparse.Namespace
) -> None:
    """Measure as one rank; rank 0 prints."""
    torch.set_num_threads(1)
    group = SharedCollectives(memory, RankTopology(rank, options.ranks), 60_000)
    x = torch.ones(options.kib * 256)
    shared = median_us(lambda: group.all_reduce(x))
    hosts = on_hosts(rank, options.ranks, pairs)
    between = median_us(lambda: hosts.all_reduce(x))
    address = f"tcp://127.0.0.1:{options.port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=options.ranks)
    gloo = median_us(lambda: distributed.all_reduce(x))
    messages = {
        "waits sleep": message_us(group, options.seqs, instants),
        "between hosts": message_us(hosts, options.seqs, instants),
    }
    for one in (group, hosts):
        one.stay_awake(AWAKE_SECONDS)
    messages["waits stay awake"] = message_us(group, options.seqs, instants)
    messages["between hosts, awake"] = message_us(hosts, options.seqs, instants)
    if rank == 0:
        print(f"{options.ranks} ranks, {os.cpu_count()} cores")
        print(
            f"sum of {options.kib} KiB: {shared:.0f} us, gloo {gloo:.0f} us ({shared / gloo:.2f}),"
            f" between hosts {between:.0f} us ({between / gloo:.2f})"
        )
        for what, shown in messages.items():
            print(f"batch of {options.seqs} sequences, {what}: {shown}")
    distributed.destroy_process_group()


def main() -> int:
    """Start the other ranks, and measure as rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kib", type=int, default=64)
    parser.add_argument("--seqs", type=int, default=256)
    parser.add_argument("--port", type=int, default=29512)
    options = parser.parse_args()
    memory, pairs = GroupMemory(options.ranks), connected(options.ranks)
    instants = np.frombuffer(mmap.mmap(-1, 16 * options.ranks), np.float64).reshape(-1, 2)
    children = []
    for rank in range(1, options.ranks):
        pid = os.fork()
        if pid == 0:
            run(memory, pairs, instants, rank, options)
            os._exit(0)
        children.append(pid)
    run(memory, pairs, instants, 0, options)
    for pid in children:
        os.waitpid(pid, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
