"""How the commands about a running deployment print what each of its cells says."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Report = TypeVar("Report", bound="DataclassInstance")


def print_cells(
    cells: Sequence[Report], describe: Callable[[Report], str], *, as_json: bool
) -> None:
    """Print the reports of all cells, as text by `describe` or as a JSON array of their fields."""
    if as_json:
        print(json.dumps([asdict(cell) for cell in cells], indent=2))
    else:
        print("\n\n".join(describe(cell) for cell in cells))
