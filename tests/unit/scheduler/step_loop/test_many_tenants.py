"""Fair queues with many tenants: the same order as a walk over all gives, without the walk."""

import random
from collections.abc import Iterator

import pytest
from unit.scheduler.cell import Cell, submission

from pagewire_scheduler.core.data.queue_reasons import WaitClock
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.queueing.tenant_queue import TenantLedger, TenantQueue
from pagewire_scheduler.core.state.queue_sums import QueueSums
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.request_creation import create_request
from pagewire_shared.sampling.params import SamplingParams

NUM_TENANTS = 3_000


def sequence_of(number: int, tenant: str) -> Sequence:
    request = create_request(submission(number, [1, 2, 3], tenant=tenant), b"f" * 16, number, 0.0)
    return request.sequences[0]


def by_a_walk(queue: TenantQueue, ledger: TenantLedger) -> Iterator[Sequence]:
    """The policy as it is said: the heads of all tenants by service, then who is behind them."""
    by_tenant: dict[str, list[Sequence]] = {}
    for sequence in queue:
        by_tenant.setdefault(sequence.request.submission.tenant, []).append(sequence)
    for members in by_tenant.values():
        members.sort(key=lambda sequence: sequence.key)
    for depth in range(max(map(len, by_tenant.values()), default=0)):
        level = [tenant for tenant, members in by_tenant.items() if len(members) > depth]
        level.sort(key=lambda tenant: (ledger.served(tenant), tenant))
        yield from (by_tenant[tenant][depth] for tenant in level)


@pytest.mark.parametrize("seed", range(12))
def test_the_order_is_that_of_a_walk_over_all(seed: int) -> None:
    dice = random.Random(seed)
    ledger = TenantLedger({"t1": 2.0, "t2": 0.5})
    queues = [TenantQueue(ledger, QueueSums(), WaitClock(lambda: 0.0, None)) for _ in range(2)]
    waiting: list[tuple[TenantQueue, Sequence]] = []
    for number in range(500):
        kind = dice.random()
        tenant = f"t{int(dice.expovariate(0.15))}"
        if kind < 0.5:
            queue, sequence = dice.choice(queues), sequence_of(number, tenant)
            queue.push(sequence)
            waiting.append((queue, sequence))
        elif kind < 0.75 and waiting:
            queue, sequence = waiting.pop(dice.randrange(len(waiting)))
            queue.remove(sequence)
        else:
            ledger.charge(tenant, dice.randrange(1, 100))
        for queue in queues:
            expected = list(by_a_walk(queue, ledger))
            num_looked_at = dice.choice([1, 3, 9, len(expected) + 1])
            found = [queue.at(index) for index in range(num_looked_at)]
            assert found == (expected + [None] * num_looked_at)[:num_looked_at]
            assert len(queue) == len(expected)


def test_who_is_first_is_found_without_a_look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = TenantLedger({})
    queue = TenantQueue(ledger, QueueSums(), WaitClock(lambda: 0.0, None))
    for number in range(NUM_TENANTS):
        queue.push(sequence_of(number, f"tenant {number}"))
    num_looks = 0
    served = TenantLedger.served

    def counted(ledger: TenantLedger, tenant: str) -> float:
        nonlocal num_looks
        num_looks += 1
        return served(ledger, tenant)

    monkeypatch.setattr(TenantLedger, "served", counted)
    assert queue.at(0) is not None
    num_looks = 0
    for _ in range(100):
        first = queue.at(0)
        assert first is not None
        queue.remove(first)
        ledger.charge(first.request.submission.tenant, 10)
    assert num_looks <= 100 * 20


def test_a_tenant_that_comes_is_not_compared_with_all_who_wait() -> None:
    ledger = TenantLedger({})
    for number in range(NUM_TENANTS):
        ledger.enter(f"tenant {number}")

    class Watched(dict[str, float]):
        num_looks = 0

        def __getitem__(self, tenant: str) -> float:
            self.num_looks += 1
            return super().__getitem__(tenant)

    ledger._served = watched = Watched(ledger._served)
    for number in range(20):
        ledger.enter(f"another {number}")
    assert watched.num_looks <= 20 * 20


def test_who_runs_and_does_not_wait_is_not_forgotten() -> None:
    cell = Cell(settings=CoreSettings(generation=3, policy="fair"))
    many = SamplingParams(max_tokens=50, ignore_eos=True)
    cell.submit(1, [1, 2, 3], tenant="heavy", sampling=many)
    plan = cell.planned()
    ledger = cell.core.policy.ledger  # type: ignore[attr-defined]
    for _ in range(1_000):
        ledger.charge("heavy", 1_000)
    served = ledger.served("heavy")
    for number in range(3_000):
        ledger.enter(f"name {number}")
        ledger.charge(f"name {number}", 1)
        ledger.leave(f"name {number}")
    assert ledger.served("heavy") >= served
    cell.answer(plan)


def test_names_at_rest_are_forgotten_the_least_served_first() -> None:
    ledger = TenantLedger({})
    ledger.enter("heavy")
    ledger.charge("heavy", 1_000_000)
    ledger.leave("heavy")
    ledger._last_left = 0.0
    for number in range(5_000):
        ledger.enter(f"name {number}")
        ledger.charge(f"name {number}", 1)
        ledger.leave(f"name {number}")
    assert len(ledger._served) <= 2_048
    assert ledger.served("heavy") == 1_000_000
