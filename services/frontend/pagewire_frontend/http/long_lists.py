"""Types of the long lists in bodies, checked up to the first item that is wrong: pydantic would
collect an error for each of half a million, for every form that the field may have.
"""

from typing import Annotated

from pydantic import FailFast


class _FirstError(FailFast):
    # Members of a union must be hashable, and pydantic's own marker is not.
    def __hash__(self) -> int:
        return id(self)


Texts = Annotated[list[str], _FirstError()]
Ids = Annotated[list[int], _FirstError()]
ListsOfIds = Annotated[list[Ids], _FirstError()]
