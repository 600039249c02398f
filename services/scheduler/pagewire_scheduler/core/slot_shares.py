"""How the slots of a worker are shared between tenants that run there: who has less than its share
need not wait until others, who have more, have ended. Decides nothing else.

Whoever takes a slot has at most its share then, and whoever gives one has at least its own, so that
no slot is taken back: each tenant keeps what it needs to get on, oldest sequence first.
"""

from collections.abc import Callable, Iterator

from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.worker_state import WorkerState


def displaceable(
    worker: WorkerState, sequence: Sequence, num_slots: int, weight_of: Callable[[str], float]
) -> Iterator[Sequence]:
    """Yield who may have to wait again for `sequence`, which needs `num_slots`: of tenants with
    more than their share the youngest first.

    Shares are by weight, between the tenants that run and that of `sequence`. Searches, which
    would start over, and sequences that nothing may evict are left alone.
    """
    counts = worker.num_running_of
    tenant = sequence.request.submission.tenant
    if not counts or (len(counts) == 1 and tenant in counts):
        return
    weights = {one: weight_of(one) for one in (tenant, *counts)}
    slots_per_weight = len(worker.slots) / sum(weights.values())
    if counts.get(tenant, 0) + num_slots > slots_per_weight * weights[tenant]:
        return
    excess = {one: count - slots_per_weight * weights[one] for one, count in counts.items()}
    for running in reversed(worker.running):
        other = running.request.submission.tenant
        is_exempt = running.is_guaranteed or running.is_beam or running.is_prefill
        if other != tenant and excess[other] >= 1 and not is_exempt:
            excess[other] -= 1
            yield running
