"""Reads values of a query, for our own errors."""

from collections.abc import Mapping

from pagewire_shared.errors import InvalidRequestError


def whole_number(query: Mapping[str, str], name: str, *, least: int, most: int) -> int | None:
    """Return a number of the query, or None. Raises InvalidRequestError naming it."""
    text = query.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) < 20
    if not is_number or not least <= int(text) <= most:
        raise InvalidRequestError(f"{name} must be a number from {least} to {most}", field=name)
    return int(text)


def truth(query: Mapping[str, str], name: str) -> bool:
    """Return a boolean of the query. Raises InvalidRequestError naming it."""
    text = query.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidRequestError(f"{name} must be true or false", field=name)
    return text == "true"
