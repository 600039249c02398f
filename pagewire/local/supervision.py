"""What to do when a child process reports, exits or is due: a pure state machine.

Owns the state of every child; starts and signals nothing itself, reads no clock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

STOP_GRACE_SECONDS = 8.0
"""From SIGTERM to SIGKILL."""

STABLE_SECONDS = 30.0
"""A child that was ready this long is started again at once, and then from the shortest delay."""

MAX_START_ATTEMPTS = 3
"""Starts of one child that a signal may end before the deployment was ready."""


class ChildState(Enum):
    """Where a child is in its life."""

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
    # READY may fail too, while others still start: a worker that the scheduler refuses, say.
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
    """Ask a child to end, or end it."""

    name: str
    is_kill: bool


@dataclass(frozen=True, slots=True)
class Restarting:
    """A child died and comes back."""

    name: str
    reason: str
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class BecameReady:
    """Every child is ready for the first time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """No child is left; `failure` says why when nobody asked for it."""

    failure: str | None


Action = Start | Signal | Restarting | BecameReady | Ended


@dataclass(slots=True)
class Child:
    """One supervised process over all its restarts."""

    name: str
    backoff: RestartBackoff
    starts_after: tuple[str, ...] = ()
    """Children that must be ready before this one starts for the first time."""
    stop_rank: int = 0
    """Children of a rank are asked to end when those of lower ranks are gone."""
    state: ChildState = ChildState.WAITING
    since: float = 0.0
    due: float = 0.0
    num_starts: int = 0
    failure: str | None = None
    """What the process itself named as the reason of its failure."""
    hang: str | None = None
    """Why it was ended, which it did not do by itself."""

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self.state in (ChildState.STARTING, ChildState.READY, ChildState.STOPPING)

    def advance(self, state: ChildState, now: float) -> None:
        """Move to `state`; an illegal move is a bug of this module."""
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
        """Start every child that waits for no other."""
        return self._start_possible(now)

    def on_ready(self, name: str, now: float) -> list[Action]:
        """A child says that it is ready."""
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
        """A child says why it is about to exit."""
        self.children[name].failure = message

    def on_hung(self, name: str, reason: str) -> list[Action]:
        """A child makes no progress: it is ended, and comes back as one that crashed."""
        child = self.children[name]
        if child.state not in (ChildState.STARTING, ChildState.READY):
            return []
        child.hang = reason
        return [Signal(name, is_kill=True)]

    def on_exit(
        self, name: str, reason: str, status: int, now: float, *, has_standby: bool = False
    ) -> list[Action]:
        """A child's process has ended; `reason` says how, for a person. What ran well for long is
        started again at once, and so is what has a replacement: hanging took longer than a delay.
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
            # What ended by itself would end so again; what was killed may live next time.
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
        """Ask the children to end, by stop rank; called again: end all of them now."""
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
        """Do what is due: restarts, and SIGKILL to those that ignored SIGTERM."""
        actions: list[Action] = []
        for child in self.children.values():
            if child.state is ChildState.BACKOFF and child.due <= now:
                actions.append(self._start(child, now))
            elif child.state is ChildState.STOPPING and child.due <= now:
                child.due = now + STOP_GRACE_SECONDS
                actions.append(Signal(child.name, is_kill=True))
        return actions

    def next_due(self) -> float | None:
        """Return when `on_time` has something to do, or None."""
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
        """Ask the next rank to end once the one before is gone; tell when nobody is left."""
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
    """Return the supervision of children given as (name, names it starts after, stop rank)."""
    return Supervision(
        {
            name: Child(name, make_backoff(), starts_after=starts_after, stop_rank=stop_rank)
            for name, starts_after, stop_rank in children
        }
    )
