"""Interface for calls after each layer that a step has computed."""

from collections.abc import Callable
from typing import Protocol


class LayerWatch(Protocol):
    """Called after each layer."""

    @property
    def is_awaited(self) -> bool:
        """Whether the layers of this step are taken one by one.

        If not, several may be computed before the calls for them are made.
        """
        ...

    def __call__(self) -> None:
        """Report that the next layer is computed."""
        ...


class LayerFollower(Protocol):
    """Takes layers during a step, to send them on."""

    @property
    def is_following(self) -> bool:
        """Whether the follower wants the layers of the step that begins."""
        ...

    def on_layer(self) -> None:
        """Take the next layer."""
        ...


class LayerCalls:
    """Reports progress, and calls a follower if there is one.

    Args:
        follower: Also called for each layer.
    """

    def __init__(self, advance: Callable[[], None], follower: LayerFollower | None = None) -> None:
        self._plain_advance = advance
        self._advance = advance
        self._follower = follower
        self._is_timed = False

    @property
    def is_awaited(self) -> bool:
        """Whether the layers of this step are taken one by one, by the follower or a profile."""
        return self._is_timed or (self._follower is not None and self._follower.is_following)

    def profile(self, on_layer: Callable[[], None] | None, *, is_timed: bool = True) -> None:
        """Also call `on_layer` for each layer, until this is called with None.

        Args:
            is_timed: Compute the layers one by one, so that each has a time of its own.
        """
        plain = self._plain_advance
        self._is_timed = is_timed and on_layer is not None
        if on_layer is None:
            self._advance = plain
            return
        profiled = on_layer

        def advance() -> None:
            plain()
            profiled()

        self._advance = advance

    def __call__(self) -> None:
        """Take the next layer."""
        self._advance()
        if self._follower is not None:
            self._follower.on_layer()
