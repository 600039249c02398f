"""Types of the fields of HTTP bodies, and the fields that follow from the sampling parameters."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, create_model

from pagewire_shared.sampling.fields import FIELDS, HttpBodies, copied_names


class _FirstError(FailFast):
    # Members of a union must be hashable, and pydantic's own marker is not.
    def __hash__(self) -> int:
        return id(self)


FIRST_ERROR: Final = _FirstError()
"""Marks a list whose check ends with its first error."""
Texts = Annotated[list[str], FIRST_ERROR]
Ids = Annotated[list[int], FIRST_ERROR]
ListsOfIds = Annotated[list[Ids], FIRST_ERROR]

_MARKED: Final = {list[str]: Texts, list[int]: Ids, str | list[str]: str | Texts}


class StrictBody(BaseModel):
    """Base of all bodies: no coercion, unknown fields are kept apart."""

    model_config = ConfigDict(strict=True, extra="allow")


Body = TypeVar("Body", bound=StrictBody)


def with_sampling(bodies: HttpBodies) -> Callable[[type[Body]], type[Body]]:
    """Return a decorator that adds the sampling parameters of `bodies` to a class, all optional."""
    types: dict[str, Any] = {
        field.name: _MARKED.get(field.body_type, field.body_type or field.kind)
        for field in FIELDS
        if bodies in field.bodies
    }
    added: dict[str, Any] = {name: (type_ | None, None) for name, type_ in types.items()}

    def add_fields(cls: type[Body]) -> type[Body]:
        return create_model(
            cls.__name__, __base__=cls, __doc__=cls.__doc__, __module__=cls.__module__, **added
        )

    return add_fields


def given_sampling(body: StrictBody, bodies: HttpBodies) -> dict[str, Any]:
    """Return the sampling parameters that `body`, one of `bodies`, gives a value."""
    values = {name: getattr(body, name) for name in copied_names(bodies)}
    return {name: value for name, value in values.items() if value is not None}
