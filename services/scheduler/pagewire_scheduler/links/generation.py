"""The generation of this scheduler (its term in the cell), and the checks of generations that peers
claim to have seen. Claims are not trusted: a peer may be wrong."""

import logging
import time

from pagewire_shared.errors import PeerRefusedError, UnavailableError
from pagewire_shared.identity.ids import DEFAULT_CELL
from pagewire_shared.identity.seen_generations import MAX_GENERATION

MAX_AHEAD_MS = 86_400_000
"""A generation that is further ahead of this clock is refused."""

LOG_AGAIN_MS = 60_000

_FIELD = "highest_generation"
_logger = logging.getLogger(__name__)


class Generation:
    """max(unix ms at start, highest seen of this cell in any hello + 1).

    It only grows. Once issued, it does not grow for a higher generation up to the present time:
    another scheduler of the cell may have that one, and is newer.

    Args:
        cell: The cell's name; generations of other cells are ignored.
    """

    def __init__(self, cell: str = DEFAULT_CELL) -> None:
        self.cell = cell
        self._number = _now_ms()
        self._is_issued = False
        self._logged_at_ms: int | None = None

    @property
    def number(self) -> int:
        """The generation; use `issue` for a welcome."""
        return self._number

    def observe(self, cell: str, highest_seen: int) -> None:
        """Take note of the highest generation that a peer has seen of `cell`; "" means this cell.

        Raises:
            PeerRefusedError: No scheduler can have had that generation.
            UnavailableError: Another scheduler of this cell has started later. It may be gone, or
                the peer may be wrong, so this scheduler keeps its attached peers.
        """
        if highest_seen > MAX_GENERATION:
            raise PeerRefusedError(f"generation {highest_seen} is above 2^63 - 1", field=_FIELD)
        if cell not in ("", self.cell) or highest_seen <= self._number:
            return
        now = _now_ms()
        if highest_seen > now + MAX_AHEAD_MS:
            raise PeerRefusedError(
                f"generation {highest_seen} of cell {self.cell!r} is more than a day ahead of the "
                f"scheduler's clock ({now}): restart this peer, which forgets it, or set the clock",
                field=_FIELD,
            )
        if self._is_issued and highest_seen <= now:
            self._refuse(highest_seen, now)
        # No peer was welcomed yet, or a clock was set back: no scheduler starts in the future.
        self._number = highest_seen + 1

    def issue(self) -> int:
        """Return the generation for a welcome."""
        self._is_issued = True
        return self._number

    def check_claim(self, highest_seen: int) -> None:
        """Raise PeerRefusedError for a generation that no scheduler of this time can have."""
        now = _now_ms()
        if highest_seen > now + MAX_AHEAD_MS:
            raise PeerRefusedError(
                f"generation {highest_seen} is more than a day ahead of the scheduler's clock "
                f"({now}): restart this peer, which forgets it, or set the clock",
                field=_FIELD,
            )

    def renew(self, highest_seen: int) -> None:
        """Begin the term of a standby that takes over: now, and above all that peers have seen."""
        self._number = max(_now_ms(), highest_seen + 1)

    def is_held(self, cell: str, generation: int | None) -> bool:
        """Whether requests that a frontend holds were taken by this scheduler."""
        return cell in ("", self.cell) and generation == self._number

    def _refuse(self, highest_seen: int, now: int) -> None:
        if self._logged_at_ms is None or abs(now - self._logged_at_ms) >= LOG_AGAIN_MS:
            self._logged_at_ms = now
            _logger.error(
                "another scheduler of cell %r has started later, a peer says (generation %d, this "
                "one's is %d); such peers are refused here. If the other one runs, stop this one; "
                "if not, restart this one. Different cells need different --cell names.",
                self.cell,
                highest_seen,
                self._number,
            )
        raise UnavailableError(
            f"another scheduler of cell {self.cell!r} has started later: generation {highest_seen} "
            f"is above {self._number}"
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
