"""The error that a call must end with."""

from collections.abc import Callable
from typing import Any, TypeVar

Caught = TypeVar("Caught", bound=Exception)


def caught(kind: type[Caught], call: Callable[..., Any], **arguments: Any) -> Caught:
    """Return the error of `kind` that the call raises."""
    try:
        call(**arguments)
    except kind as error:
        return error
    raise AssertionError(f"{arguments} raised no {kind.__name__}")
