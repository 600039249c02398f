"""Remembers the highest scheduler generation that a peer has seen in each cell."""

from pagewire_shared.errors import UnavailableError, WireError

MAX_GENERATION = 2**63 - 1
MAX_CELLS = 16


class SeenGenerations:
    """The highest generation of each cell, for the cells met last.

    A peer dials an address and learns the cell from the welcome. Its hello carries the highest
    generation of the cell that it met last.
    """

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self.cell = ""
        """The cell met last; "" before the first welcome, and for a scheduler without a name."""

    @property
    def highest(self) -> int:
        """The highest generation of the cell met last; 0 before the first welcome."""
        return self._highest.get(self.cell, 0)

    def meet(self, cell: str, generation: int) -> None:
        """Note the cell and the generation of a welcome.

        Raises:
            WireError: The generation is out of range; it is not kept.
            UnavailableError: A later scheduler of that cell was met before. The next hello reports
                its generation to this scheduler.
        """
        if generation > MAX_GENERATION:
            raise WireError(f"generation {generation} is above 2^63 - 1")
        self.cell = cell
        highest = self._highest.pop(cell, 0)
        self._highest[cell] = max(highest, generation)
        if len(self._highest) > MAX_CELLS:
            del self._highest[next(iter(self._highest))]
        if generation < highest:
            raise UnavailableError(f"generation {generation} is older than {highest}")
