"""What a LocalCluster tells its observer. Owns no behaviour."""

from dataclasses import dataclass

from pagewire.local.child_process import LineReceived
from pagewire.local.supervision import BecameReady, Ended, Restarting


@dataclass(frozen=True, slots=True)
class Loading:
    """A child reports progress towards being ready.

    Attributes:
        name: The child.
        fraction: Done, from 0 to 1; None when it cannot tell.
        detail: What it does.
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
    """A child does not answer, and a replacement was started that waits.

    Attributes:
        name: The child.
        pid: Process id of the replacement.
    """

    name: str
    pid: int


@dataclass(frozen=True, slots=True)
class StoodDown:
    """The replacement of a child has ended without being used.

    Attributes:
        name: The child.
        reason: For a person.
    """

    name: str
    reason: str


Notice = (
    Loading | ChildReady | LineReceived | StandingBy | StoodDown | Restarting | BecameReady | Ended
)
"""What an observer is called with, on the cluster's thread."""
