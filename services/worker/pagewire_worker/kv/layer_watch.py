"""Who is told of each layer that a step has computed. Owns no computation."""

from collections.abc import Callable
from typing import Protocol


class LayerWatch(Protocol):
    """Called after each layer."""

    @property
    def is_awaited(self) -> bool:
        """Whether somebody takes the layers of this step one by one; where nobody does, several
        may be computed before the calls for them are made."""
        ...

    def __call__(self) -> None:
        """Take the next layer."""
        ...


class LayerFollower(Protocol):
    """Takes layers while a step computes them."""

    @property
    def is_following(self) -> bool:
        """Whether it wants those of the step that begins."""
        ...

    def on_layer(self) -> None:
        """Take the next layer."""
        ...


class LayerCalls:
    """Shows progress, and tells a follower if there is one.

    Args:
        advance: Called for each layer.
        follower: Told of each layer as well.
    """

    def __init__(self, advance: Callable[[], None], follower: LayerFollower | None = None) -> None:
        self._advance = advance
        self._follower = follower

    @property
    def is_awaited(self) -> bool:
        """Whether the follower takes the layers of this step one by one."""
        return self._follower is not None and self._follower.is_following

    def __call__(self) -> None:
        """Take the next layer."""
        self._advance()
        if self._follower is not None:
            self._follower.on_layer()
