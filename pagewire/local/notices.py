"""Notices that a LocalCluster passes to its observer."""

from dataclasses import dataclass

from pagewire.local.child_process import LineReceived
from pagewire.local.supervision import BecameReady, Ended, Restarting


@dataclass(frozen=True, slots=True)
class Loading:
    """A child reports progress towards being ready.

    Attributes:
        name: Name of the child.
        fraction: Fraction done, from 0 to 1; None when unknown.
        detail: Description of the work.
    """

    name: str
    fraction: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class ChildReady:
    """A child is ready, for the first time or again."""

    name: str


@dataclass(frozen=True, slots=True)
class StandingBy:
    """A child does not answer, and a standby was started as its replacement.

    Attributes:
        name: Name of the child.
        pid: Process id of the replacement.
    """

    name: str
    pid: int


@dataclass(frozen=True, slots=True)
class StoodDown:
    """The replacement of a child has ended without being used.

    Attributes:
        name: Name of the child.
        reason: Reason, for a person.
    """

    name: str
    reason: str


Notice = (
    Loading | ChildReady | LineReceived | StandingBy | StoodDown | Restarting | BecameReady | Ended
)
"""Argument of an observer, which the cluster's thread calls."""
