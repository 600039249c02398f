"""Parses the JSON of a body: strict, of bounded depth and bounded work. Knows no fields.

RFC 8259 does not define duplicate names, and many parsers take NaN. Both are refused here: two
parts of a system that disagree on a body are a way around its checks.
"""

import re
from typing import Any

import jiter
import orjson

from pagewire_shared.errors import InvalidRequestError

MAX_COMMAS = 2**19
MAX_NAMES = 2**15
"""Values and names cost far more than text of the same size, and are parsed in one piece that
blocks the event loop: this many take some 50 ms."""
MAX_CONTAINERS = 2**16
"""Lists and objects: each costs as much as some ten values."""
# The end of a text, behind an even number of backslashes, and a colon.
_NAME_END = re.compile(rb'(?<!\\)(?:\\\\)*"\s*:')
# Possessive, and with an optional end: the pattern reads each byte once.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_MAX_MESSAGE_CHARS = 200


def parse_object(raw: bytes) -> dict[str, Any]:
    """Return the object that a body holds, nested at most 200 deep.

    Raises:
        InvalidRequestError: No JSON, no object, a name twice, a number that is malformed or too
            large, text that is not Unicode, or too many values.
    """
    if not raw.strip():
        raise _invalid("the body is empty")
    if raw.startswith(_BYTE_ORDER_MARKS):
        raise _invalid("the body must be UTF-8 without a byte order mark")
    _check_complexity(raw)
    try:
        value = jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
        # orjson refuses numbers that jiter takes, such as 1e999, which would become infinite.
        orjson.loads(raw)
    except ValueError as error:
        reason = str(error)
        if len(reason) > _MAX_MESSAGE_CHARS:
            # A name may be as long as the body.
            reason = f"{reason[:_MAX_MESSAGE_CHARS]}..."
        raise _invalid(f"the body is no JSON: {reason}") from error
    if not isinstance(value, dict):
        raise InvalidRequestError("the body must be a JSON object", code="invalid_type")
    return value


def _check_complexity(raw: bytes) -> None:
    """Raise InvalidRequestError where parsing would take long."""
    most = ""
    if raw.count(b",") > MAX_COMMAS:
        most = f"{MAX_COMMAS} commas"
    elif raw.count(b":") > MAX_NAMES and sum(1 for _ in _NAME_END.finditer(raw)) > MAX_NAMES:
        # The second count is exact, the first is quick: most bodies have few colons.
        most = f"{MAX_NAMES} names"
    elif raw.count(b"[") + raw.count(b"{") > MAX_CONTAINERS:
        bare = _TEXT.sub(b"", raw)
        if bare.count(b"[") + bare.count(b"{") > MAX_CONTAINERS:
            most = f"{MAX_CONTAINERS} lists and objects"
    if most:
        raise InvalidRequestError(f"the body has more than {most}", code="body_too_complex")


def _invalid(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, code="invalid_json")
