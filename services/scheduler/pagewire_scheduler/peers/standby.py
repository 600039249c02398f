"""Decides whether this scheduler is active or stands by, from the reports of frontends and workers.
It does no I/O: the caller passes `now` in, in seconds of a monotonic clock."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

REPORT_SECONDS: Final = 0.5
"""Time between two reports of one reporter."""

FRESH_SECONDS: Final = 1.5
"""A reporter that says nothing for longer may hang itself, and does not count."""

SETTLE_SECONDS: Final = 0.5
"""A scheduler that has not heard of an active one waits this long for further reporters."""


class CellRole(Enum):
    """What a scheduler does for its cell."""

    STANDBY = "standby"
    ACTIVE = "active"
    REPLACED = "replaced"
    """Another scheduler of the cell has a higher generation: this one must begin anew."""


LEGAL_MOVES: Final = {
    CellRole.STANDBY: frozenset({CellRole.ACTIVE}),
    CellRole.ACTIVE: frozenset({CellRole.REPLACED}),
    CellRole.REPLACED: frozenset[CellRole](),
}


@dataclass(frozen=True, slots=True)
class PartyReport:
    """The newest report of one stream; see WatchRequest."""

    active_generation: int
    highest_generation: int
    asks: bool
    at: float


class StandbyDesk:
    """The role of this scheduler, and the reports that decide it.

    Args:
        is_paired: The cell has a second scheduler; else this one is active from the start.

    Attributes:
        role: What this scheduler does now.
        highest_seen: Highest generation in any report.
    """

    def __init__(self, *, is_paired: bool) -> None:
        self.role = CellRole.STANDBY if is_paired else CellRole.ACTIVE
        self.highest_seen = 0
        self._reports: dict[object, PartyReport] = {}
        self._has_met_active = False
        self._asked_at: float | None = None

    def report(self, party: object, report: PartyReport) -> None:
        """Take the newest report of a stream; `party` is any key of that stream."""
        self._reports[party] = report
        self.highest_seen = max(self.highest_seen, report.highest_generation)
        self._has_met_active |= report.active_generation > 0

    def leave(self, party: object) -> None:
        """Forget a stream that has ended."""
        self._reports.pop(party, None)

    def decide(self, own_generation: int, now: float) -> CellRole:
        """Return the role of this scheduler from now on; call it after reports and every tick.

        Args:
            own_generation: The generation of an active scheduler; a standby's does not matter.
        """
        fresh = [one for one in self._reports.values() if now - one.at <= FRESH_SECONDS]
        elsewhere = max((one.active_generation for one in fresh), default=0)
        # Its reporters have left it for one that is gone by now: only a new generation helps.
        is_left = any(one.asks and one.highest_generation > own_generation for one in fresh)
        if self.role is CellRole.ACTIVE and (elsewhere > own_generation or is_left):
            self._move(CellRole.REPLACED)
        elif self.role is CellRole.STANDBY and self._is_wanted(fresh, elsewhere, now):
            self._move(CellRole.ACTIVE)
        return self.role

    def _is_wanted(self, fresh: list[PartyReport], elsewhere: int, now: float) -> bool:
        """Whether the reporters hear no active scheduler, and one asks this one to take over."""
        if elsewhere or not any(one.asks for one in fresh):
            self._asked_at = None
            return False
        if self._asked_at is None:
            self._asked_at = now
        return self._has_met_active or now - self._asked_at >= SETTLE_SECONDS

    def _move(self, role: CellRole) -> None:
        assert role in LEGAL_MOVES[self.role], f"{self.role} cannot become {role}"
        self.role = role
