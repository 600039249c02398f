"""`pagewire top` as text."""

from dataclasses import replace

import pytest

from pagewire.cli.live import top
from pagewire.cli.live.overview import CellOverview, TierOverview, WorkerOverview
from pagewire.client.admin_client import FrontendReport, PoolReport
from pagewire.client.topology_client import ModelFacts, SchedulerFacts, WorkerFacts
from pagewire_shared.errors import UnavailableError

FACTS = WorkerFacts(
    worker="ab" * 16,
    model="tiny",
    roles=("prefill", "decode"),
    is_draining=False,
    kv_endpoint="",
    kv_transports=(),
    layout="",
    num_running=3,
    num_waiting=7,
    max_num_seqs=64,
)
POOL = PoolReport(
    worker="ab" * 16,
    num_blocks=100,
    num_held=11,
    num_cached=22,
    num_free=89,
    num_slots=3,
    num_steps_in_flight=2,
)
CELL = CellOverview(
    generation=5,
    num_requests=9,
    num_waiting=7,
    num_running=3,
    workers=(
        WorkerOverview(FACTS, POOL),
        WorkerOverview(replace(FACTS, worker="cd" * 16, memory="asleep"), None),
        WorkerOverview(replace(FACTS, worker="ef" * 16, is_draining=True), POOL),
    ),
    tiers=(
        TierOverview(tier="worker", store="", num_blocks=33, share=0.33),
        TierOverview(tier="disk", store="s:8300", num_blocks=7, share=None, fault="full"),
    ),
    models=(
        ModelFacts(
            model="tiny",
            num_queried_tokens=640,
            found_tokens={"device": 400, "memory": 112, "disk": 0},
            num_lost_workers=2,
            num_requeued_sequences=3,
            num_preemptions=4,
        ),
    ),
    frontends=(FrontendReport("99" * 16, 4, 4),),
    problems=("leaked_block in scheduler: block 3",),
)


def test_a_cell_as_text() -> None:
    lines = top.describe(replace(CELL, num_resumed=5)).splitlines()
    head, columns, first, second, third, *tiers, found, survived, resumed, frontend, problem = lines
    assert [line.split() for line in tiers] == [
        ["KV", "tier", "store", "blocks", "full"],
        ["worker", "-", "33", "33%"],
        ["disk", "s:8300", "7", "-", "full"],
    ]
    assert found.strip() == (
        "tiny: 512 of 640 prompt tokens found in caches (80%): 400 in device, 112 in memory"
    )
    assert survived.strip() == "tiny: 2 workers lost, 3 sequences went on elsewhere, 4 preempted"
    assert resumed.strip() == "5 requests went on after a scheduler was lost"
    assert head == "scheduler, generation 5: 9 requests, 3 sequences running, 7 waiting"
    assert columns.split()[:4] == ["worker", "model", "roles", "memory"]
    assert first.split()[3:] == ["awake", "3", "7", "64", "11", "22", "89", "2"]
    assert second.split()[3:] == ["asleep", "3", "7", "64", "-", "-", "-", "-"]
    assert third.split()[3] == "draining"
    assert frontend == "  frontend 99999999: 4 open streams"
    assert problem == "PROBLEM: leaked_block in scheduler: block 3"


def test_a_pair_of_schedulers_shows_which_is_active() -> None:
    pair = (SchedulerFacts("a:8100", "lost"), SchedulerFacts("b:8100", "active"))
    lines = top.describe(replace(CELL, schedulers=pair)).splitlines()
    assert lines[1:3] == ["  lost scheduler at a:8100", "  active scheduler at b:8100"]


def test_it_goes_on_while_nothing_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([UnavailableError("connection refused"), [CELL]])

    async def answer(*_: object, **__: object) -> list[CellOverview]:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    num_looks = 0

    def wait(seconds: float) -> None:
        nonlocal num_looks
        num_looks += 1
        if num_looks == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(top, "overview", answer)
    monkeypatch.setattr(top.time, "sleep", wait)
    with pytest.raises(KeyboardInterrupt):
        top.run("top", ["--seconds", "0.5"])
    shown = capsys.readouterr().out
    assert "does not answer: connection refused" in shown
    assert "generation 5" in shown
