"""Reads the bodies of requests as checked models; all endpoints with a body use it."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.http.body.json_reader import JsonReader, is_large
from pagewire_frontend.http.field_outcomes import unread_fields
from pagewire_frontend.http.kept_streams.keys import digest_of
from pagewire_frontend.http.openai.schemas import body_of
from pagewire_frontend.http.server.connection import read_body, while_connected
from pagewire_frontend.http.server.ignored_fields import first_names, note_ignored
from pagewire_frontend.request_label import IDEMPOTENCY_KEY

Body = TypeVar("Body", bound=BaseModel)
Result = TypeVar("Result")


class Bodies:
    """Reads bodies. `close` it at the end.

    Args:
        max_bytes: Most bytes of one body.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._json = JsonReader(max_bytes)

    async def read(self, request: Request, cls: type[Body]) -> Body:
        """Return the body of a request.

        Raises:
            InvalidRequestError: It is no JSON, or has a wrong field, which is named.
            MediaTypeError, BodyTooLargeError, ClientGoneError: See `read_body`.
            OverloadedError: Too many large bodies wait already.
        """
        body, names = await self.read_as(request, partial(_read, cls))
        note_ignored(request.scope, names)
        return body

    async def read_keyed(self, request: Request, cls: type[Body]) -> tuple[Body, bytes]:
        """Return the body of a request, and the digest of path and body. Raises as `read`."""
        body, names, digest = await self._read(request, partial(_read_keyed, cls, request.url.path))
        note_ignored(request.scope, names)
        return body, digest

    async def read_as(self, request: Request, shaped: Callable[[dict[str, Any]], Result]) -> Result:
        """Return what `shaped` makes of the object in the body, maybe in a thread. Raises what
        `shaped` raises, and what `read` raises."""
        if IDEMPOTENCY_KEY in request.headers:
            # Its client counts on it.
            note_ignored(request.scope, [IDEMPOTENCY_KEY])
        return await self._read(request, shaped)

    async def _read(self, request: Request, shaped: Callable[[dict[str, Any]], Result]) -> Result:
        chunks = await read_body(request, self._max_bytes)
        work = self._json.read(current_tenant(), chunks, shaped)
        return await (while_connected(request, work) if is_large(chunks) else work)

    def close(self) -> None:
        """End the process for large bodies."""
        self._json.close()


def _read(cls: type[Body], data: dict[str, Any]) -> tuple[Body, list[str]]:
    """Return a body, and its fields without effect: to search many turns takes milliseconds."""
    body = body_of(cls, data)
    return body, first_names(unread_fields(body))


def _read_keyed(cls: type[Body], path: str, data: dict[str, Any]) -> tuple[Body, list[str], bytes]:
    digest = digest_of(path, data)
    return *_read(cls, data), digest
