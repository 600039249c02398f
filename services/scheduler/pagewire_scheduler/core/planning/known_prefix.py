"""Finds a prompt prefix that the worker already holds for another sequence, so that a plan need not
send it again. The prefix reaches as far as both sequences have the same cached blocks.

Two sequences with the same block at one index have equal tokens up to its end: the hash of the
block covers all of them.
"""

from dataclasses import dataclass

from pagewire_scheduler.core.blocks.prefix_cache import CachedPrefix
from pagewire_scheduler.core.planning.plan_builder import PlanBuilder
from pagewire_scheduler.core.state.request import Sequence


@dataclass(frozen=True, slots=True)
class KnownPrefix:
    """A prefix of a prompt that the worker has: the first `num_tokens` of the sequence in
    `slot`."""

    slot: int = 0
    num_tokens: int = 0


NO_PREFIX = KnownPrefix()


def find_known_prefix(
    builder: PlanBuilder, sequence: Sequence, prefix: CachedPrefix
) -> KnownPrefix:
    """Return the longest prefix that the worker can copy; `prefix` are the cached blocks of
    `sequence`, from its first.

    The source must keep its slot to the end of this plan, as every sequence does that runs when
    others are started. Its slot must be filled before new ones: forks in this plan come later.
    """
    # Of the first group: if any reads all positions, this one does, and has all its blocks.
    worker, hits = builder.worker, prefix.groups[0]
    block_size = worker.info.model.block_size
    num_most = min(len(hits), sequence.num_prompt // block_size)
    num_least = max(1, -(-worker.limits.min_prefix_tokens // block_size))
    if not worker.info.takes_prefixes or num_most < num_least:
        return NO_PREFIX
    forked = set(builder.plan.fork_slots)
    best, slot = num_least - 1, None
    for other in worker.running:
        table = other.table
        if table is None or other.slot in forked or other.request in worker.branched:
            continue
        end = min(num_most, len(table.blocks), other.num_prompt // block_size)
        if best < end and table.blocks[best] == hits[best]:
            best, slot = _num_common(table.blocks, hits, best + 1, end), other.slot
            if best == num_most:
                break
    return NO_PREFIX if slot is None else KnownPrefix(slot, best * block_size)


def _num_common(blocks: list[int], hits: list[int], begin: int, end: int) -> int:
    """Return how many blocks are common, from `begin` to `end`; the block before `begin` is."""
    while begin < end:
        middle = (begin + end + 1) // 2
        if blocks[middle - 1] == hits[middle - 1]:
            begin = middle
        else:
            end = middle - 1
    return begin
