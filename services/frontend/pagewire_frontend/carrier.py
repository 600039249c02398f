"""What a session asks of the link that carries it."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pagewire_frontend.session import Session


class Carrier(Protocol):
    """The scheduler link that carries a session."""

    def abort_choice(self, session: "Session", choice: int) -> None:
        """Tell the scheduler that one choice is not wanted any more."""
        ...

    def drop(self, session: "Session") -> None:
        """Tell the scheduler that nothing of the request is wanted, and forget it."""
        ...

    def forget(self, session: "Session") -> None:
        """Forget a request that has ended on both sides."""
        ...
