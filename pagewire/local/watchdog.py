"""State machine that detects children that hang, from probes and from their activity.

Only time counts in which this process ran on time and the child could have run: a paused, swapping
or overloaded machine kills no child. Before an idle child is killed, a standby is started, which
is dismissed when the child answers. LocalCluster carries out the returned actions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pagewire.local.process_activity import Activity

TICK_SECONDS = 0.25
MAX_LATE_SECONDS = 0.25
MAX_STOPPED_SECONDS = 0.5
"""Most seconds that one look at a stopped child counts."""

IDLE_PATIENCE_SECONDS = 2.0
FRONTEND_PATIENCE_SECONDS = 10.0
"""Longer, because the streams of a frontend's clients end with the frontend."""
START_PATIENCE_SECONDS = 60.0
"""Before it is ready, a child may wait for a network or a disk without reading probes."""

STANDBY_SHARE = 0.5
"""Share of the patience with an idle child after which a standby is started."""
STANDBY_PAUSE_SECONDS = 10.0
MAX_STANDBY_PAUSE_SECONDS = 640.0
"""Longest pause between two standbys of one child that were not needed; the pause doubles."""

BUSY_PATIENCE_SECONDS = {"scheduler": 10.0, "kvstore": 10.0, "frontend": 30.0, "worker": 300.0}
"""Longer, because a child that computes may still answer."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Probe whether a child makes progress."""

    name: str


@dataclass(frozen=True, slots=True)
class Hung:
    """A child hangs; `reason` is for a person."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """A child may hang: start a standby for it."""

    name: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """A child has answered: end its standby."""

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
        """Return whether to start a standby, and count it as started."""
        is_due = self.is_ready and self.idle_seconds >= STANDBY_SHARE * self._idle_patience()
        if not is_due or self.has_standby or now < self.next_standby:
            return False
        self.has_standby = True
        return True

    def dismisses(self, now: float) -> bool:
        """Return whether to end a standby, because the child has answered."""
        had_standby, self.has_standby = self.has_standby, False
        if had_standby:
            self.next_standby = now + self.standby_pause
            self.standby_pause = min(2 * self.standby_pause, MAX_STANDBY_PAUSE_SECONDS)
        return had_standby

    def hang(self) -> str | None:
        """Return the reason to kill the child, or None."""
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
        is_on: Whether children are watched at all.
    """

    def __init__(self, now: float, *, is_on: bool = True) -> None:
        self._is_on = is_on
        self._watched: dict[str, _Watched] = {}
        self._last = now

    @property
    def next_tick(self) -> float | None:
        """Time of the next call of `on_time`; None while no child is watched."""
        return self._last + TICK_SECONDS if self._watched else None

    def started(self, name: str, role: str, now: float) -> None:
        """Note that a child's process was started."""
        if not self._watched:
            self._last = now
        if self._is_on:
            self._watched[name] = _Watched(role)

    def ready(self, name: str) -> None:
        """Note that a child is ready, and must answer soon from now on."""
        watched = self._watched.get(name)
        if watched is not None:
            watched.is_ready = True
            watched.heard()

    def ended(self, name: str) -> None:
        """Stop watching a child that has ended or is about to end."""
        self._watched.pop(name, None)

    def answered(self, name: str, *, is_alive: bool) -> list[Hung | Dismiss]:
        """Note an answer; a child that reports no progress counts as hung at once."""
        watched = self._watched.get(name)
        if watched is None:
            return []
        watched.heard()
        if not is_alive:
            return [self._give_up(name, "hung: it says that it makes no progress")]
        return [Dismiss(name)] if watched.dismisses(self._last) else []

    def on_time(self, now: float, look: Callable[[str], Activity]) -> list[Ask | Prepare | Hung]:
        """Probe the children that have answered, and count time for all others.

        Args:
            now: The time.
            look: Returns the activity of a child that has not answered.
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
            # A lack of cores never stops a process. This process may have been stopped, too, and
            # have resumed before the child.
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
