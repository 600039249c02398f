"""Which child hangs: asks each again and again, and looks at what one that does not answer does. A
pure state machine: starts, signals and reads nothing itself, owns no clock.

Only time counts in which this side itself ran on time, and only where the child would have had its
turn: a machine that is paused, swaps or has too few cores kills nobody. Before a child that does
nothing is given up a replacement is started, which waits; it is not needed when the child answers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pagewire.local.process_activity import Activity

TICK_SECONDS = 0.25
MAX_LATE_SECONDS = 0.25
MAX_STOPPED_SECONDS = 0.5
"""What one look at a stopped child may count, however long ago the look before was."""

IDLE_PATIENCE_SECONDS = 2.0
FRONTEND_PATIENCE_SECONDS = 10.0
"""The streams of a frontend's clients end with it."""
START_PATIENCE_SECONDS = 60.0
"""Before a child is ready it may wait for a network or a disk and hear nobody meanwhile."""

STANDBY_SHARE = 0.5
"""Of the patience with one that does nothing: then a replacement is started."""
STANDBY_PAUSE_SECONDS = 10.0
MAX_STANDBY_PAUSE_SECONDS = 640.0
"""Between two replacements of one process that were not needed; the pause doubles."""

BUSY_PATIENCE_SECONDS = {"scheduler": 10.0, "kvstore": 10.0, "frontend": 30.0, "worker": 300.0}
"""One that computes and does not answer may be about to."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a child whether it gets on."""

    name: str


@dataclass(frozen=True, slots=True)
class Hung:
    """A child hangs; `reason` is for a person."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """A child may hang: a replacement is to stand by."""

    name: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """A child has answered: its replacement is not needed."""

    name: str


@dataclass(slots=True)
class _Watched:
    role: str
    is_ready: bool = False
    is_asked: bool = False
    idle_seconds: float = 0.0
    busy_seconds: float = 0.0
    has_standby: bool = False
    standby_pause: float = STANDBY_PAUSE_SECONDS
    next_standby: float = -math.inf

    def heard(self) -> None:
        self.is_asked = False
        self.idle_seconds = self.busy_seconds = 0.0

    def prepares(self, now: float) -> bool:
        """Whether a replacement is to be started; it counts as started then."""
        is_due = self.is_ready and self.idle_seconds >= STANDBY_SHARE * self._idle_patience()
        if not is_due or self.has_standby or now < self.next_standby:
            return False
        self.has_standby = True
        return True

    def dismisses(self, now: float) -> bool:
        """Whether a replacement is to be ended, as the child has answered."""
        had_standby, self.has_standby = self.has_standby, False
        if had_standby:
            self.next_standby = now + self.standby_pause
            self.standby_pause = min(2 * self.standby_pause, MAX_STANDBY_PAUSE_SECONDS)
        return had_standby

    def hang(self) -> str | None:
        """Why it is given up, if it is."""
        if self.idle_seconds >= self._idle_patience():
            return f"hung: no answer in {self.idle_seconds:.1f} s, and it does nothing"
        if self.is_ready and self.busy_seconds >= BUSY_PATIENCE_SECONDS[self.role]:
            return f"hung: no answer in {self.busy_seconds:.0f} s, while it computes"
        return None

    def _idle_patience(self) -> float:
        if not self.is_ready:
            return START_PATIENCE_SECONDS
        is_frontend = self.role == "frontend"
        return FRONTEND_PATIENCE_SECONDS if is_frontend else IDLE_PATIENCE_SECONDS


class Watchdog:
    """Watches the children of one deployment.

    Args:
        now: The time, in seconds of any clock.
        is_on: Without it nobody is watched.
    """

    def __init__(self, now: float, *, is_on: bool = True) -> None:
        self._is_on = is_on
        self._watched: dict[str, _Watched] = {}
        self._last = now

    @property
    def next_tick(self) -> float | None:
        """When `on_time` is to be called next; None while there is nobody to watch."""
        return self._last + TICK_SECONDS if self._watched else None

    def started(self, name: str, role: str, now: float) -> None:
        """A process was started."""
        if not self._watched:
            self._last = now
        if self._is_on:
            self._watched[name] = _Watched(role)

    def ready(self, name: str) -> None:
        """It says that it is ready: from now on it answers soon."""
        watched = self._watched.get(name)
        if watched is not None:
            watched.is_ready = True
            watched.heard()

    def ended(self, name: str) -> None:
        """It is gone, or to end."""
        self._watched.pop(name, None)

    def answered(self, name: str, *, is_alive: bool) -> list[Hung | Dismiss]:
        """It has answered; what it says of itself counts at once."""
        watched = self._watched.get(name)
        if watched is None:
            return []
        watched.heard()
        if not is_alive:
            return [self._give_up(name, "hung: it says that it makes no progress")]
        return [Dismiss(name)] if watched.dismisses(self._last) else []

    def on_time(self, now: float, look: Callable[[str], Activity]) -> list[Ask | Prepare | Hung]:
        """Ask those that have answered, and count for those that have not.

        Args:
            now: The time.
            look: Says what a child does that has not answered.
        """
        elapsed = now - self._last
        if elapsed < TICK_SECONDS:
            return []
        self._last = now
        is_late = elapsed > TICK_SECONDS + MAX_LATE_SECONDS
        actions: list[Ask | Prepare | Hung] = []
        for name, watched in list(self._watched.items()):
            if not watched.is_asked:
                watched.is_asked = True
                actions.append(Ask(name))
                continue
            self._count(watched, look(name), elapsed, is_late=is_late)
            reason = watched.hang()
            if reason is not None:
                actions.append(self._give_up(name, reason))
            elif not is_late and watched.prepares(now):
                actions.append(Prepare(name))
        return actions

    def _count(
        self, watched: _Watched, activity: Activity, seconds: float, *, is_late: bool
    ) -> None:
        if activity is Activity.STOPPED:
            # No lack of cores does that. Both may have been stopped, and go on one after the other.
            watched.idle_seconds += min(seconds, MAX_STOPPED_SECONDS)
        elif activity is Activity.IDLE:
            watched.idle_seconds += 0.0 if is_late else seconds
        else:
            watched.idle_seconds = 0.0
            is_counted = activity is not Activity.HELD and not is_late
            watched.busy_seconds += seconds if is_counted else 0.0

    def _give_up(self, name: str, reason: str) -> Hung:
        del self._watched[name]
        return Hung(name, reason)
