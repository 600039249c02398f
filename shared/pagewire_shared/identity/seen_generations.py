"""What a peer of schedulers remembers of their generations, by cell: they count apart."""

from pagewire_shared.errors import UnavailableError, WireError

MAX_GENERATION = 2**63 - 1
MAX_CELLS = 16


class SeenGenerations:
    """The highest generation seen of each cell, of the cells met last.

    A peer dials an address; which cell it will find there it learns from the welcome. Its hello
    tells what it has seen of the cell that it met last.
    """

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self.cell = ""
        """The cell met last; "" before any, and for a scheduler that names none."""

    @property
    def highest(self) -> int:
        """The highest generation seen of the cell met last; 0 when none was."""
        return self._highest.get(self.cell, 0)

    def meet(self, cell: str, generation: int) -> None:
        """Take note of a welcome.

        Raises:
            WireError: No scheduler can have that generation; it is not kept.
            UnavailableError: A later scheduler of that cell was met before. The next hello tells
                this one of it.
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
