"""Products of cases: some run in `make test`, and `make test-whole` runs all."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

WHOLE = (pytest.mark.long, pytest.mark.whole)


def cases_of(names: Iterable[str], chosen: Collection[str]) -> list[Any]:
    """Return parameters of all `names`, those that are not `chosen` marked as whole.

    Raises:
        ValueError: A name that is chosen is none of them.
    """
    every = list(names)
    if not set(chosen) <= set(every):
        raise ValueError(f"not among the cases: {sorted(set(chosen) - set(every))}")
    return [name if name in chosen else pytest.param(name, marks=WHOLE) for name in every]
