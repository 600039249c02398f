"""Reads objects inside the body of a response as strict models, and notes what has no effect."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pagewire_frontend.http.field_outcomes import unread_fields
from pagewire_frontend.http.openai.validation import as_invalid

Shape = TypeVar("Shape", bound=BaseModel)


class Shapes:
    """Reads the objects of one body.

    Attributes:
        ignored: Fields without effect, with dots for nesting and without numbers.
    """

    def __init__(self) -> None:
        self.ignored: set[str] = set()

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
