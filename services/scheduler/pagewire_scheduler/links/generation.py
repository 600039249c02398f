"""This scheduler's generation: which of several lives of a cell's scheduler is the newest, and what
peers may claim about it. Nobody who claims is known to tell the truth."""

import logging
import time

from pagewire_shared.errors import PeerRefusedError, UnavailableError
from pagewire_shared.identity.ids import DEFAULT_CELL
from pagewire_shared.identity.seen_generations import MAX_GENERATION

MAX_AHEAD_MS = 86_400_000
"""Further ahead of this clock than a day no generation of the cell is believed."""

LOG_AGAIN_MS = 60_000

_FIELD = "highest_generation"
_logger = logging.getLogger(__name__)


class Generation:
    """max(unix ms at start, highest seen of this cell in any hello + 1).

    It only grows. Once somebody was welcomed it grows no more for what another scheduler of the
    cell may have issued by now: that one is the newer one.

    Args:
        cell: The cell's name; what peers have seen of other cells does not matter.
    """

    def __init__(self, cell: str = DEFAULT_CELL) -> None:
        self.cell = cell
        self._number = _now_ms()
        self._is_issued = False
        self._logged_at_ms: int | None = None

    @property
    def number(self) -> int:
        """The generation; reading it to welcome a peer goes with `issue`."""
        return self._number

    def observe(self, cell: str, highest_seen: int) -> None:
        """Take note of what a peer has seen of `cell`; "" is a peer that knows of no cells, and
        counts as one of this cell.

        Raises:
            PeerRefusedError: No scheduler can have had that generation.
            UnavailableError: Another scheduler of this cell has started later. It may be gone, and
                the peer may be wrong: this one goes on with the peers that it has.
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
        # Nobody was welcomed yet, or a clock was set back: later than now no other has started.
        self._number = highest_seen + 1

    def issue(self) -> int:
        """Return the generation for a welcome."""
        self._is_issued = True
        return self._number

    def is_held(self, cell: str, generation: int | None) -> bool:
        """Whether what a frontend holds is of this scheduler."""
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
