"""Reads objects inside the body of a response as strict models, notes what has no effect, and gives
ids to items without one."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pagewire_frontend.http.field_outcomes import unread_fields
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.openai.validation import as_invalid
from pagewire_frontend.http.responses.ids import ItemIds

Shape = TypeVar("Shape", bound=BaseModel)


class Shapes:
    """Reads the objects of one body.

    Attributes:
        ignored: Fields without effect, with dots for nesting and without numbers.
    """

    def __init__(self, pins: Pins) -> None:
        """Create it.

        Args:
            pins: What ids of items are made of.
        """
        self.ignored: set[str] = set()
        self._ids = ItemIds(pins, "input")

    def id_of(self, given: str | None, prefix: str) -> str:
        """Return the id of the next item: the given one, if there is one."""
        return given or self._ids.next(prefix)

    def read(self, cls: type[Shape], place: str, given: dict[str, Any]) -> Shape:
        """Return an object as a strict model.

        Args:
            cls: The model.
            place: Where the object stands in the body, such as "input.0.content.1".
            given: The object.

        Raises:
            InvalidRequestError: Names the field of the body, and the place in the message.
        """
        within = place.split(".")
        try:
            body = cls.model_validate(given)
        except ValidationError as error:
            raise as_invalid(error, within) from error
        names = [part for part in within if not part.isdigit()]
        self.ignored.update(unread_fields(body, "".join(f"{name}." for name in names)))
        return body
