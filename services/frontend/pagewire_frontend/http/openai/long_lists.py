"""Types of the long lists in bodies, checked up to the first item that is wrong: pydantic would
collect an error for each of half a million, for every form that the field may have.
"""

from typing import Annotated

from pydantic import FailFast


class _FirstError(FailFast):
    # Members of a union must be hashable, and pydantic's own marker is not.
    def __hash__(self) -> int:
        return id(self)


FIRST_ERROR = _FirstError()
"""Marks any other list."""
Texts = Annotated[list[str], FIRST_ERROR]
Ids = Annotated[list[int], FIRST_ERROR]
ListsOfIds = Annotated[list[Ids], FIRST_ERROR]
