"""Planted bugs of two schedulers of a cell: each is found by some history of the pair."""

import math
from collections.abc import Callable

import pytest
from simulation.processes import pair

from pagewire_scheduler.peers import standby
from pagewire_scheduler.peers.standby import CellRole, StandbyDesk
from pagewire_shared.pair import choice
from pagewire_shared.pair.choice import SchedulerChoice

Plant = Callable[[pytest.MonkeyPatch], None]


def follow_any_active(patch: pytest.MonkeyPatch) -> None:
    """A party follows a scheduler that says it is active, whatever its generation."""

    def active(self: SchedulerChoice, now: float) -> int | None:
        known = [i for i, one in self._heard.items() if one.generation and self._is_heard(one, now)]
        return min(known, default=None)

    patch.setattr(SchedulerChoice, "active", active)


def take_over_for_one(patch: pytest.MonkeyPatch) -> None:
    """A standby takes over when one party asks, though others have an active scheduler."""
    whole = StandbyDesk._is_wanted

    def wanted(self: StandbyDesk, fresh: list[standby.PartyReport], _: int, now: float) -> bool:
        return whole(self, fresh, 0, now)

    patch.setattr(StandbyDesk, "_is_wanted", wanted)


def stay_active(patch: pytest.MonkeyPatch) -> None:
    """A scheduler that was replaced goes on."""
    whole = StandbyDesk._move

    def move(self: StandbyDesk, role: CellRole) -> None:
        if role is not CellRole.REPLACED:
            whole(self, role)

    patch.setattr(StandbyDesk, "_move", move)


def mint_by_the_clock(patch: pytest.MonkeyPatch) -> None:
    """A term is not above the generations that parties have seen."""
    patch.setattr(pair.Scheduler, "minted", lambda self, now: int((1000 + now + self.skew) * 1000))


def count_hung_parties(patch: pytest.MonkeyPatch) -> None:
    """What a party said before it hung counts for ever."""
    patch.setattr(standby, "FRESH_SECONDS", math.inf)


def wait_for_a_hung_scheduler(patch: pytest.MonkeyPatch) -> None:
    """Silence is no loss."""
    patch.setattr(choice, "SILENCE_SECONDS", math.inf)


def ignore_parties_that_left(patch: pytest.MonkeyPatch) -> None:
    """An active scheduler keeps a generation below one that is gone."""
    whole = StandbyDesk.report

    def report(self: StandbyDesk, party: object, said: standby.PartyReport) -> None:
        whole(self, party, said)
        if self.role is CellRole.ACTIVE:
            known = standby.PartyReport(said.active_generation, 0, said.asks, said.at)
            self._reports[party] = known

    patch.setattr(StandbyDesk, "report", report)


PLANTS: tuple[Plant, ...] = (
    follow_any_active,
    take_over_for_one,
    stay_active,
    mint_by_the_clock,
    count_hung_parties,
    wait_for_a_hung_scheduler,
    ignore_parties_that_left,
)
