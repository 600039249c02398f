"""Mints the ids of responses and of their items. A response's id holds the tag of the frontend
process that made it, and nothing else."""

import os
import re
from typing import Final

_RESPONSE_ID = re.compile(r"resp_([0-9a-f]{8})_[0-9a-f]{32}")

MESSAGE_PREFIX: Final = "msg"
REASONING_PREFIX: Final = "rs"
CALL_PREFIX: Final = "fc"
CALL_OUTPUT_PREFIX: Final = "fco"


def mint_response_id(tag: str) -> str:
    """Return the id of a new response of the process `tag`."""
    return f"resp_{tag}_{os.urandom(16).hex()}"


def tag_of(response_id: str) -> str | None:
    """Return the tag of the process that made a response; None for a malformed id."""
    match = _RESPONSE_ID.fullmatch(response_id)
    return match[1] if match else None


def mint_item_id(prefix: str) -> str:
    """Return the id of a new item."""
    return f"{prefix}_{os.urandom(16).hex()}"
