"""Names of tool calls."""

import secrets
import string
from typing import Final

_ALPHABET: Final = string.ascii_letters + string.digits


def new_call_id() -> str:
    """Return call_ and 24 letters and digits, as OpenAI's look."""
    return "call_" + _draw(24)


def new_short_id() -> str:
    """Return 9 letters and digits: mistral's templates refuse anything else."""
    return _draw(9)


def _draw(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
