"""/v1/responses/{response_id}: retrieve, cancel, delete, and the items before the answer."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.http.responses.directory import ResponseDirectory
from pagewire_frontend.http.responses.endpoints import response_stream
from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.http.server.query import truth, whole_number
from pagewire_shared.errors import InvalidRequestError

DEFAULT_PAGE: Final = 20
MAX_PAGE: Final = 100

_PATH: Final = "/v1/responses/{response_id}"
_MAX_EVENT: Final = 2**31 - 1


def _described(**schemas: Any) -> dict[str, Any]:
    """Return the description of a query that is parsed by hand, for our own errors."""
    return {
        "parameters": [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in schemas.items()
        ]
    }


_RETRIEVED: Final = _described(
    stream={"type": "boolean", "default": False},
    starting_after={"type": "integer", "minimum": 0, "maximum": _MAX_EVENT},
)
_LISTED: Final = _described(
    limit={"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": DEFAULT_PAGE},
    order={"type": "string", "enum": ["asc", "desc"], "default": "desc"},
    after={"type": "string"},
)


def make_router(directory: ResponseDirectory) -> APIRouter:
    """Return the endpoints, which find responses in `directory`."""
    router = APIRouter()

    @router.get(_PATH, openapi_extra=_RETRIEVED)
    async def retrieve(request: Request, response_id: str) -> Response:
        """Return a response as it is now, or the events of one that goes on by itself."""
        query, tenant = request.query_params, current_tenant()
        if not truth(query, "stream"):
            return json_response(await directory.get(response_id, tenant))
        last = whole_number(query, "starting_after", least=0, most=_MAX_EVENT)
        first = 0 if last is None else last + 1
        reading = await directory.events(response_id, tenant, first)
        return response_stream(request, reading.frames, reading.close)

    @router.post(f"{_PATH}/cancel")
    async def cancel(request: Request, response_id: str) -> Response:
        """End a background response."""
        return json_response(await directory.cancel(response_id, current_tenant()))

    @router.delete(_PATH)
    async def delete(request: Request, response_id: str) -> Response:
        """Forget a response."""
        await directory.delete(response_id, current_tenant())
        return json_response({"id": response_id, "object": "response", "deleted": True})

    @router.get(f"{_PATH}/input_items", openapi_extra=_LISTED)
    async def list_input_items(request: Request, response_id: str) -> Response:
        """List the conversation before the answer."""
        listed = await directory.input_items(response_id, current_tenant())
        return json_response(page(listed, request.query_params))

    return router


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
