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


Notice = Loading | ChildReady | LineReceived | Restarting | BecameReady | Ended
"""What an observer is called with, on the cluster's thread."""
