"""State machine that decides when child processes start, restart and stop.

LocalCluster reports events with their time, and carries out the returned actions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

STOP_GRACE_SECONDS = 8.0
"""Seconds from SIGTERM to SIGKILL."""

STABLE_SECONDS = 30.0
"""A child that was ready this long restarts at once; its backoff starts anew."""

MAX_START_ATTEMPTS = 3
"""Most starts of one child while signals end it before the deployment is ready."""


class ChildState(Enum):
    """State of a child."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


LEGAL_MOVES: dict[ChildState, frozenset[ChildState]] = {
    ChildState.WAITING: frozenset({ChildState.STARTING, ChildState.STOPPED}),
    ChildState.STARTING: frozenset(
        {ChildState.READY, ChildState.BACKOFF, ChildState.STOPPING, ChildState.FAILED}
    ),
    # A READY child may fail while others still start, such as a worker that the scheduler refuses.
    ChildState.READY: frozenset({ChildState.BACKOFF, ChildState.STOPPING, ChildState.FAILED}),
    ChildState.BACKOFF: frozenset({ChildState.STARTING, ChildState.STOPPED}),
    ChildState.STOPPING: frozenset({ChildState.STOPPED}),
    ChildState.STOPPED: frozenset(),
    ChildState.FAILED: frozenset(),
}


class RestartBackoff(Protocol):
    """Delays between attempts, as pagewire_shared.process.backoff."""

    def next_seconds(self) -> float:
        """Return the next delay."""
        ...

    def reset(self) -> None:
        """Start again from the first delay."""
        ...


@dataclass(frozen=True, slots=True)
class Start:
    """Start the process of a child."""

    name: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Send SIGTERM to a child, or SIGKILL if `is_kill`."""

    name: str
    is_kill: bool


@dataclass(frozen=True, slots=True)
class Restarting:
    """A child ended and will be started again."""

    name: str
    reason: str
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class BecameReady:
    """Every child is ready for the first time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """All children have ended; `failure` is the reason unless a stop was requested."""

    failure: str | None


Action = Start | Signal | Restarting | BecameReady | Ended


@dataclass(slots=True)
class Child:
    """One supervised process over all its restarts."""

    name: str
    backoff: RestartBackoff
    starts_after: tuple[str, ...] = ()
    """Children that must be ready before this child starts for the first time."""
    stop_rank: int = 0
    """Children of a rank get SIGTERM when all children of lower ranks have ended."""
    state: ChildState = ChildState.WAITING
    since: float = 0.0
    due: float = 0.0
    num_starts: int = 0
    failure: str | None = None
    """Reason of a failure as the process itself reported it."""
    hang: str | None = None
    """Reason for which the supervision killed a process that hung."""

    @property
    def is_running(self) -> bool:
        """Whether the child has a process."""
        return self.state in (ChildState.STARTING, ChildState.READY, ChildState.STOPPING)

    def advance(self, state: ChildState, now: float) -> None:
        """Move to `state`; illegal moves are bugs of this module."""
        assert state in LEGAL_MOVES[self.state], f"{self.name}: {self.state} -> {state}"
        self.state = state
        self.since = now


@dataclass(slots=True)
class Supervision:
    """The children of one deployment."""

    children: dict[str, Child]
    has_been_ready: bool = False
    is_stopping: bool = False
    failure: str | None = None
    _has_ended: bool = field(default=False)

    def start(self, now: float) -> list[Action]:
        """Start every child that waits for no other child."""
        return self._start_possible(now)

    def on_ready(self, name: str, now: float) -> list[Action]:
        """Note that a child is ready; start the children that waited for it."""
        child = self.children[name]
        if child.state is not ChildState.STARTING or self.is_stopping:
            return []
        child.advance(ChildState.READY, now)
        actions = self._start_possible(now)
        if not self.has_been_ready and all(
            c.state is ChildState.READY for c in self.children.values()
        ):
            self.has_been_ready = True
            actions.append(BecameReady())
        return actions

    def on_failed(self, name: str, message: str) -> None:
        """Note the reason that a child gives before it exits."""
        self.children[name].failure = message

    def on_hung(self, name: str, reason: str) -> list[Action]:
        """Kill a child that makes no progress; its exit then counts as a crash."""
        child = self.children[name]
        if child.state not in (ChildState.STARTING, ChildState.READY):
            return []
        child.hang = reason
        return [Signal(name, is_kill=True)]

    def on_exit(
        self, name: str, reason: str, status: int, now: float, *, has_standby: bool = False
    ) -> list[Action]:
        """Note that a child's process has ended, and schedule its restart.

        A child that was ready for STABLE_SECONDS restarts at once, and so does a child with a
        standby, because its hang took longer than a delay. `reason` is for a person.
        """
        child = self.children[name]
        reason, child.hang = child.hang or reason, None
        if self.is_stopping:
            if child.state is not ChildState.STOPPING:
                child.advance(ChildState.STOPPING, now)
            child.advance(ChildState.STOPPED, now)
            return self._stop_next(now)
        stated, child.failure = child.failure, None
        is_stable = child.state is ChildState.READY and now - child.since >= STABLE_SECONDS
        if not self.has_been_ready:
            # A process that exited by itself would exit again; a killed one may live next time.
            was_killed = status < 0 and not stated
            if not was_killed or child.num_starts >= MAX_START_ATTEMPTS:
                child.advance(ChildState.FAILED, now)
                self.failure = f"{name}: {stated or reason}"
                return self.on_stop(now)
        elif is_stable:
            child.backoff.reset()
        child.advance(ChildState.BACKOFF, now)
        delay = child.backoff.next_seconds()
        if has_standby or is_stable:
            delay = 0.0
        child.due = now + delay
        return [Restarting(name, stated or reason, delay)]

    def on_stop(self, now: float) -> list[Action]:
        """Send SIGTERM to the children by stop rank; a second call kills all of them."""
        actions: list[Action] = []
        for child in self.children.values():
            if child.state in (ChildState.WAITING, ChildState.BACKOFF):
                child.advance(ChildState.STOPPED, now)
            elif self.is_stopping and child.is_running:
                if child.state is not ChildState.STOPPING:
                    child.advance(ChildState.STOPPING, now)
                child.due = now + STOP_GRACE_SECONDS
                actions.append(Signal(child.name, is_kill=True))
        self.is_stopping = True
        return [*actions, *self._stop_next(now)]

    def on_time(self, now: float) -> list[Action]:
        """Return the actions due: restarts, and SIGKILL for children that ignored SIGTERM."""
        actions: list[Action] = []
        for child in self.children.values():
            if child.state is ChildState.BACKOFF and child.due <= now:
                actions.append(self._start(child, now))
            elif child.state is ChildState.STOPPING and child.due <= now:
                child.due = now + STOP_GRACE_SECONDS
                actions.append(Signal(child.name, is_kill=True))
        return actions

    def next_due(self) -> float | None:
        """Return the time of the next action of `on_time`, or None."""
        states = (ChildState.BACKOFF, ChildState.STOPPING)
        return min((c.due for c in self.children.values() if c.state in states), default=None)

    def _start_possible(self, now: float) -> list[Action]:
        return [
            self._start(child, now)
            for child in self.children.values()
            if child.state is ChildState.WAITING
            and all(self.children[n].state is ChildState.READY for n in child.starts_after)
        ]

    def _start(self, child: Child, now: float) -> Action:
        child.advance(ChildState.STARTING, now)
        child.num_starts += 1
        return Start(child.name)

    def _stop_next(self, now: float) -> list[Action]:
        """Send SIGTERM to the next rank once the rank before has ended; return Ended at the end."""
        running = [child for child in self.children.values() if child.is_running]
        if not running and not self._has_ended:
            self._has_ended = True
            return [Ended(self.failure)]
        if not running or any(child.state is ChildState.STOPPING for child in running):
            return []
        rank = min(child.stop_rank for child in running)
        actions: list[Action] = []
        for child in running:
            if child.stop_rank == rank:
                child.advance(ChildState.STOPPING, now)
                child.due = now + STOP_GRACE_SECONDS
                actions.append(Signal(child.name, is_kill=False))
        return actions


def supervise(
    children: Sequence[tuple[str, tuple[str, ...], int]], make_backoff: Callable[[], RestartBackoff]
) -> Supervision:
    """Return a supervision; `children` has (name, names of children to start after, stop rank)."""
    return Supervision(
        {
            name: Child(name, make_backoff(), starts_after=starts_after, stop_rank=stop_rank)
            for name, starts_after, stop_rank in children
        }
    )
