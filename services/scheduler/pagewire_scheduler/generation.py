"""This scheduler's generation: which of several lives of a cell's scheduler is the newest."""

import time

from pagewire_shared.errors import StartupError


class Generation:
    """max(unix ms at start, highest seen in any hello + 1), fixed by the first welcome."""

    def __init__(self) -> None:
        self._number = _mint(0)
        self._is_issued = False

    @property
    def number(self) -> int:
        """The generation; reading it to welcome a peer goes with `issue`."""
        return self._number

    def observe(self, highest_seen: int) -> None:
        """Take note of what a peer has seen.

        Raises:
            StartupError: Another scheduler has succeeded this one, which must leave. Before anybody
                was welcomed this one is the successor instead, whatever its clock says.
        """
        if highest_seen <= self._number:
            return
        if self._is_issued:
            raise StartupError(
                f"generation {highest_seen} has succeeded this scheduler's {self._number}"
            )
        self._number = _mint(highest_seen)

    def issue(self) -> int:
        """Return the generation for a welcome; from now on it stays."""
        self._is_issued = True
        return self._number


def _mint(highest_seen: int) -> int:
    """Return a generation above every one seen: max(unix ms, highest_seen + 1)."""
    return max(time.time_ns() // 1_000_000, highest_seen + 1)
