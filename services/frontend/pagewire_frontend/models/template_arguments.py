"""Checks the arguments that a client may pass to a chat template besides the turns."""

from collections.abc import Mapping
from typing import Any, Final

from pagewire_shared.errors import InvalidRequestError

MAX_ARGUMENTS: Final = 16
RESERVED: Final = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "documents",
        "functions",
        "messages",
        "raise_exception",
        "strftime_now",
        "tokenize",
        "tools",
    }
)
"""Names that the server fills in, or that mean something else than a value of the template."""


def checked_arguments(field: str, arguments: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return `arguments`; None for an empty mapping.

    Raises:
        InvalidRequestError: Too many, a reserved name, or a value that is no JSON scalar; names
            `field`.
    """
    if not arguments:
        return None
    if len(arguments) > MAX_ARGUMENTS:
        raise InvalidRequestError(
            f"{field} takes at most {MAX_ARGUMENTS} values, got {len(arguments)}", field=field
        )
    for name, value in arguments.items():
        # The special tokens are the tokenizer's: bos_token, eos_token and so on.
        if name in RESERVED or name.endswith("_token"):
            raise InvalidRequestError(f"{field}: {name} is not for the client to set", field=field)
        if value is not None and not isinstance(value, str | bool | int | float):
            raise InvalidRequestError(
                f"{field}: {name} must be a text, a number, true, false or null", field=field
            )
    return dict(arguments)
