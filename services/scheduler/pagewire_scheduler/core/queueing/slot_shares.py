"""Shares slots, blocks and step tokens of a worker between tenants: a tenant with less than its
share may displace sequences of tenants with more.

A taker has at most its share afterwards, and a giver had more than its share, so sequences are not
displaced to and fro. Each tenant keeps its share of the slots, and its oldest sequence, so that it
makes progress.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from pagewire_scheduler.core.state.capacity import num_blocks_to_start
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState


def divide(
    num_tokens: int, wants: Mapping[str, int], weight_of: Callable[[str], float]
) -> dict[str, int]:
    """Return the tokens of each tenant. A tenant gets what it wants up to its share by weight; the
    other tenants divide the rest by weight.

    Each tenant gets at least one token, and no token is left while a tenant wants more. There must
    be at least as many tokens as tenants, and each tenant wants some.
    """
    weights = {tenant: weight_of(tenant) for tenant in wants}
    # Who wants least of its share comes first; what it leaves is shared by those behind it.
    order = sorted(wants, key=lambda tenant: wants[tenant] / weights[tenant])
    shares: dict[str, int] = {}
    weight_left = sum(weights.values())
    for num_behind, tenant in zip(reversed(range(len(order))), order, strict=True):
        share = int(num_tokens * weights[tenant] / weight_left) if num_behind else num_tokens
        # Shares are rounded down and the last tenant takes the rest: no token is lost.
        share = min(wants[tenant], max(1, min(share, num_tokens - num_behind)))
        shares[tenant] = share
        num_tokens -= share
        weight_left -= weights[tenant]
    return shares


def displaceable(
    worker: WorkerState, sequence: Sequence, num_slots: int, weight_of: Callable[[str], float]
) -> Iterator[Sequence]:
    """Yield the sequences that may be preempted for `sequence`, which needs `num_slots`: of tenants
    with more than their share, the youngest first.

    Shares are by weight, among the running tenants and that of `sequence`. Beam searches, which
    would start over, and guaranteed sequences are left alone.
    """
    counts = worker.num_running_of
    tenant = sequence.request.submission.tenant
    if not counts or (len(counts) == 1 and tenant in counts):
        return
    weights = {one: weight_of(one) for one in (tenant, *counts)}
    total = sum(weights.values())
    parts = {one: weight / total for one, weight in weights.items()}
    if counts.get(tenant, 0) + num_slots > len(worker.slots) * parts[tenant]:
        return
    slots = {one: count - len(worker.slots) * parts[one] for one, count in counts.items()}
    blocks = _excess_of_blocks(worker, sequence, parts)
    num_left = Counter(counts)
    for running in reversed(worker.running):
        other = running.request.submission.tenant
        is_exempt = running.placement.is_guaranteed or running.is_beam or running.is_prefill
        has_more = slots[other] >= 1 or (blocks[other] > 0 and num_left[other] > 1)
        if other != tenant and has_more and not is_exempt:
            slots[other] -= 1
            blocks[other] -= _num_held(running)
            num_left[other] -= 1
            yield running


def _excess_of_blocks(
    worker: WorkerState, sequence: Sequence, parts: dict[str, float]
) -> Counter[str]:
    """Return the blocks of each tenant beyond its share. The result is empty if `sequence` lacks no
    blocks, or if its own tenant would exceed its share.

    A block that several sequences share counts for each of them.
    """
    held: Counter[str] = Counter()
    if sequence.fairness.lack is None and not worker.info.groups.has_windows:
        return held
    for running in worker.running:
        held[running.request.submission.tenant] += _num_held(running)
    tenant, total = sequence.request.submission.tenant, worker.info.num_blocks
    if held[tenant] + num_blocks_to_start(worker, sequence) > total * parts[tenant]:
        return Counter()
    return Counter({one: int(count - total * parts[one]) for one, count in held.items()})


def _num_held(running: Sequence) -> int:
    table = running.table
    if table is None:
        return 0
    return len(table.blocks) * len(table.groups) - sum(table.num_released)
