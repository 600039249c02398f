"""Times what ranks do together, in processes of one host: sums, against gloo's, and messages.

    python benchmarks/cpu/ranks.py [--ranks 2] [--kib 64] [--seqs 256]

Prints medians of one call in microseconds: a sum through shared memory and by torch.distributed's
gloo, and the time from rank 0's send of a batch until all other ranks have decoded it and answered.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import distributed

from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.messages import decode, decode_batch, encode_batch
from pagewire_worker.parallel.shared_collectives import SharedCollectives

TIMES = 2000
WARM_UP = 200
BLOCK_SIZE = 16


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


def message_us(group: SharedCollectives, num_seqs: int) -> float:
    """Return the median time of a batch to all other ranks, with the sum by which they answer."""
    answer = torch.zeros(16)
    batch = decode_of(num_seqs)

    def call() -> None:
        if group.topology.tp_rank == 0:
            group.send(encode_batch(batch, BLOCK_SIZE))
        else:
            decode_batch(decode(group.receive()))
        group.all_reduce(answer)

    return median_us(call)


def run(memory: GroupMemory, rank: int, options: argparse.Namespace) -> None:
    """Measure as one rank; rank 0 prints."""
    torch.set_num_threads(1)
    group = SharedCollectives(memory, RankTopology(rank, options.ranks), 60_000)
    x = torch.ones(options.kib * 256)
    shared = median_us(lambda: group.all_reduce(x))
    address = f"tcp://127.0.0.1:{options.port}"
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=options.ranks)
    gloo = median_us(lambda: distributed.all_reduce(x))
    message = message_us(group, options.seqs)
    if rank == 0:
        print(f"{options.ranks} ranks, {os.cpu_count()} cores")
        print(
            f"sum of {options.kib} KiB: {shared:.0f} us, gloo {gloo:.0f} us ({shared / gloo:.2f})"
        )
        print(f"batch of {options.seqs} sequences: {message:.0f} us")
    distributed.destroy_process_group()


def main() -> int:
    """Start the other ranks, and measure as rank 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kib", type=int, default=64)
    parser.add_argument("--seqs", type=int, default=256)
    parser.add_argument("--port", type=int, default=29512)
    options = parser.parse_args()
    memory = GroupMemory(options.ranks)
    children = []
    for rank in range(1, options.ranks):
        pid = os.fork()
        if pid == 0:
            run(memory, rank, options)
            os._exit(0)
        children.append(pid)
    run(memory, 0, options)
    for pid in children:
        os.waitpid(pid, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
