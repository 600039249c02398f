"""Names of cells: which scheduler's generations can be compared."""

import re

from pagewire_shared.errors import StartupError

DEFAULT_CELL = "default"
MAX_CELL_CHARACTERS = 128

_LEGAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


def check_cell_name(name: str) -> None:
    """Raise StartupError unless `name` can name a cell."""
    if len(name) > MAX_CELL_CHARACTERS or not _LEGAL.fullmatch(name):
        raise StartupError(
            f"--cell: {name!r} is no name; write 1 to {MAX_CELL_CHARACTERS} letters, digits, and "
            "._/- behind the first",
            field="cell",
        )
