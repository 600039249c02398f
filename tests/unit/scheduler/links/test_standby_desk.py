"""When a scheduler takes over, and when it stands by."""

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from pagewire_scheduler.links import standby_service
from pagewire_scheduler.links.generation import MAX_AHEAD_MS, Generation
from pagewire_scheduler.links.standby_service import CellStandby
from pagewire_scheduler.peers.standby import (
    FRESH_SECONDS,
    SETTLE_SECONDS,
    CellRole,
    PartyReport,
    StandbyDesk,
)
from pagewire_shared.errors import OverloadedError, PeerRefusedError


def hears(generation: int, at: float = 0.0) -> PartyReport:
    return PartyReport(generation, generation, asks=False, at=at)


def asks(highest: int = 0, at: float = 0.0) -> PartyReport:
    return PartyReport(0, highest, asks=True, at=at)


def test_alone_it_is_active_from_the_start() -> None:
    assert StandbyDesk(is_paired=False).decide(5, 0.0) is CellRole.ACTIVE


def test_it_takes_over_at_once_when_all_have_lost_the_active_one() -> None:
    desk = StandbyDesk(is_paired=True)
    desk.report("a", hears(7))
    desk.report("b", hears(7))
    desk.report("a", asks(7))
    assert desk.decide(0, 0.0) is CellRole.STANDBY
    desk.report("b", asks(7))
    assert desk.decide(0, 0.0) is CellRole.ACTIVE
    assert desk.highest_seen == 7


def test_at_first_it_waits_for_more_reports() -> None:
    desk = StandbyDesk(is_paired=True)
    desk.report("a", asks())
    assert desk.decide(0, 0.0) is CellRole.STANDBY
    desk.report("a", asks(at=SETTLE_SECONDS))
    assert desk.decide(0, SETTLE_SECONDS) is CellRole.ACTIVE


def test_it_takes_over_only_when_asked() -> None:
    desk = StandbyDesk(is_paired=True)
    desk.report("a", hears(7))
    desk.report("a", PartyReport(0, 7, asks=False, at=0.0))
    assert desk.decide(0, 0.0) is CellRole.STANDBY


def test_a_reporter_that_hangs_or_leaves_does_not_count() -> None:
    desk = StandbyDesk(is_paired=True)
    desk.report("hangs", hears(7))
    desk.report("leaves", hears(7, at=9.0))
    desk.report("a", asks(7, at=9.0))
    assert FRESH_SECONDS < 9.0
    assert desk.decide(0, 9.0) is CellRole.STANDBY
    desk.leave("leaves")
    assert desk.decide(0, 9.0) is CellRole.ACTIVE


@pytest.mark.parametrize("report", [hears(8), asks(8)], ids=["another", "one that is gone"])
def test_a_higher_generation_replaces_it(report: PartyReport) -> None:
    desk = StandbyDesk(is_paired=False)
    desk.report("a", hears(7))
    assert desk.decide(7, 0.0) is CellRole.ACTIVE
    desk.report("a", report)
    assert desk.decide(7, 0.0) is CellRole.REPLACED


def test_a_term_begins_above_all_that_was_seen() -> None:
    generation = Generation("cell")
    later = time.time_ns() // 1_000_000 + 60_000
    generation.renew(later)
    assert generation.number == later + 1
    with pytest.raises(PeerRefusedError):
        generation.check_claim(later + 2 * MAX_AHEAD_MS)


async def test_so_many_processes_watch_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_service, "MAX_PARTIES", 2)
    generation = SimpleNamespace(cell="c", number=7)
    loop: Any = SimpleNamespace(generation=generation, clock=time.monotonic)
    standby = CellStandby(loop, is_paired=True)

    async def silence() -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    watches = [standby.watch(silence()) for _ in range(2)]
    for watch in watches:
        assert (await anext(watch)).generation == 0
    with pytest.raises(OverloadedError, match="more than 2 processes"):
        await anext(standby.watch(silence()))
    await watches[0].aclose()
    assert (await anext(standby.watch(silence()))).generation == 0


async def test_a_report_that_cannot_be_read_ends_its_stream() -> None:
    loop: Any = SimpleNamespace(
        generation=SimpleNamespace(cell="c", number=7), clock=time.monotonic
    )

    async def broken() -> AsyncIterator[Any]:
        raise RuntimeError("broken")
        yield

    with pytest.raises(RuntimeError, match="broken"):
        async for _ in CellStandby(loop, is_paired=True).watch(broken()):
            pass
