"""Parses the queries of GET requests, and cuts one page of a list."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pagewire_frontend.http.responses.items import Item
from pagewire_shared.errors import InvalidRequestError

DEFAULT_PAGE: Final = 20
MAX_PAGE: Final = 100


def page(items: Sequence[Item], query: Mapping[str, str]) -> dict[str, Any]:
    """Return one page of `items`, which come oldest first; newest first unless `order` is asc.

    Raises:
        InvalidRequestError: Names limit, order or after.
    """
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequestError("order must be asc or desc", field="order")
    limit = whole_number(query, "limit", least=1, most=MAX_PAGE)
    listed = list(items) if order == "asc" else list(reversed(items))
    after = query.get("after")
    if after is not None:
        places = [index for index, item in enumerate(listed) if item["id"] == after]
        if not places:
            raise InvalidRequestError("after names no item of this list", field="after")
        listed = listed[places[0] + 1 :]
    data = listed[: DEFAULT_PAGE if limit is None else limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else "",
        "last_id": data[-1]["id"] if data else "",
        "has_more": len(data) < len(listed),
    }


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
