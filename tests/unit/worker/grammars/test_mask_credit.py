"""What costly masks may take of the machine, in CPU time."""

import random
import threading
import time
from collections import defaultdict
from types import SimpleNamespace
from typing import cast

import pytest

from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from pagewire_worker.grammars import compiled, mask_credit
from pagewire_worker.grammars.mask_credit import (
    DEBT_SECONDS,
    MOST_SECONDS,
    SHARE,
    Credit,
    MaskCredits,
)
from pagewire_worker.grammars.mask_jobs import Bill, MaskJob
from pagewire_worker.grammars.mask_threads import (
    REST_SECONDS,
    MaskThreads,
    TenantTurns,
    _cpu_seconds,
)
from support.cells.grammar_bench import Bench
from support.oracles.grammars import LANGUAGES

HIDDEN = Params(grammar='start: "begin" a "end"\na: a a a | a a | "a" | "b"')
NUM_ROWS = 20


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.table.shutdown()


def test_whatever_masks_take_their_tenant_gets_a_share_of_the_time():
    dice = random.Random(3)
    for _ in range(20):
        credit, now, taken, longest = Credit(at=5.0), 5.0, 0.0, 0.0
        proven = dice.random()
        for _ in range(500):
            now += dice.choice((0.0, 0.001, 0.1))
            credit.others_at = now
            if credit.allows(now, is_proven=dice.random() < proven):
                seconds = dice.choice((0.0, 0.001, 0.05, 0.5))
                credit.charge(seconds, now)
                taken, longest = taken + seconds, max(longest, seconds)
        assert taken <= MOST_SECONDS + DEBT_SECONDS + SHARE * (now - 5.0) + longest


def test_a_tenant_that_is_alone_pays_nothing():
    credit = Credit()
    credit.charge(10.0, now=100.0)
    assert credit.allows(100.0, is_proven=False)
    credit.others_at = 100.0
    credit.charge(0.2, now=100.0)
    assert not credit.allows(100.0, is_proven=False)
    # Requests that have been cheap so far have nothing to do with it, up to a point.
    assert credit.allows(100.0, is_proven=True)
    credit.charge(DEBT_SECONDS, now=100.0)
    assert not credit.allows(100.0, is_proven=True)
    # It has paid that back when as much time has gone by, and has no more than before later.
    credit.others_at = 113.0
    assert credit.allows(113.0, is_proven=False)
    assert credit.left(1e6) == MOST_SECONDS


def test_a_request_is_proven_by_masks_that_were_cheap():
    bill = Bill(Credit(), 1e-5)
    assert not bill.is_proven
    bill.num_all = mask_credit.PROVEN_MASKS
    assert bill.is_proven
    bill.excess_seconds = 1e-3
    assert not bill.is_proven


def test_credits_outlive_requests_and_are_bounded(monkeypatch):
    monkeypatch.setattr(mask_credit, "MAX_TENANTS", 2)
    tenants = MaskCredits()
    first = tenants.of("a")
    assert tenants.of("") is not first
    assert tenants.of("a") is first
    tenants.of("b")
    assert tenants.of("a") is first
    tenants.of("c"), tenants.of("d")
    assert tenants.of("a") is not first


def test_tenants_take_turns_and_the_request_that_has_cost_least_is_first():
    turns, (many, few) = TenantTurns(), (Credit(), Credit())
    jobs = {
        name: cast(MaskJob, SimpleNamespace(bill=Bill(credit, 0.0, seconds=cost), is_dropped=False))
        for name, credit, cost in (
            ("x", many, 0.3),
            ("y", many, 0.1),
            ("z", many, 0.2),
            ("one", few, 4.0),
            ("two", few, 5.0),
        )
    }
    for job in jobs.values():
        turns.push(job)
    jobs["z"].is_dropped = True
    names = {id(job): name for name, job in jobs.items()}
    got = [names[id(job)] for job in iter(turns.pop, None)]
    assert got == ["y", "one", "x", "two"]


def test_masks_that_steps_wait_for_take_a_share_of_the_time_however_cheap_each_is(
    bench, monkeypatch
):
    """None is so costly that its grammar would count as slow, on slow machines either."""
    monkeypatch.setattr(compiled, "SLOW_MASK_SECONDS", 10 * compiled.SLOW_MASK_SECONDS)
    grammar_id, plain = bench.compile(HIDDEN), NUM_ROWS
    (a,), rows = bench.ids("a"), list(range(NUM_ROWS))
    began, num_masks = time.monotonic(), 0
    bench.install(plain, None)
    for _ in range(6):
        bench.free(*rows)
        for slot in rows:
            bench.install(slot, grammar_id, [*bench.ids("begin"), *[a] * 24], "a")
        for _ in range(8):
            bench.masks([*rows, plain])
            num_masks += NUM_ROWS
            bench.write(rows, [a] * NUM_ROWS)
    assert not bench.compiler._compiled.find(grammar_id).is_slow
    threads = bench.table._threads
    taken = sum(map(_cpu_seconds, threads._threads[:2]))
    seconds = time.monotonic() - began
    free = num_masks * bench.table._cheap_seconds
    # What the threads take besides masks is not charged.
    assert taken <= 1.5 * (MOST_SECONDS + SHARE * seconds + free) + 0.05
    # A grammar of another tenant is none of this.
    other = bench.compile(LANGUAGES[1].params)
    bench.free(plain)
    bench.install(plain, other, tenant="b")
    masks = bench.masks([*rows, plain])
    assert plain in masks.rows.tolist()


def test_slow_threads_rest_so_that_they_take_a_share_of_the_machine(bench, monkeypatch):
    monkeypatch.setattr("pagewire_worker.grammars.mask_threads.os.cpu_count", lambda: 2)
    rested: defaultdict[str, float] = defaultdict(float)

    def rest(self: MaskThreads, seconds: float) -> float:
        if seconds < REST_SECONDS:
            return seconds
        rested[threading.current_thread().name] += seconds
        return 0.0

    monkeypatch.setattr(MaskThreads, "_rest", rest)
    grammar_id = bench.compile(HIDDEN)
    (a,) = bench.ids("a")
    bench.compiler._compiled.find(grammar_id).mask_seconds = 1.0
    bench.install(8, None)
    for slot in range(8):
        bench.install(slot, grammar_id, [*bench.ids("begin"), *[a] * 80], "a")
    while len(bench.masks([*range(9)]).late):
        time.sleep(0.01)
    read, fill = (_cpu_seconds(thread) for thread in bench.table._threads._threads[2:])
    assert fill > 0.02
    # Either thread does a little besides what it rests for.
    assert rested["masks-slow"] >= 3 * 0.8 * fill - 2 * REST_SECONDS
    assert rested["masks-reading"] >= 19 * 0.7 * read - 2 * REST_SECONDS
