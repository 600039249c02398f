"""Reads the bodies of requests as checked models; all endpoints with a body use it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

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


@dataclass(frozen=True, slots=True)
class KeptBody(Generic[Result]):
    """A body, its text as it came, and the digest of path and body if its answer is kept."""

    body: Result
    text: bytes
    digest: bytes = b""


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

    async def read_kept(self, request: Request, cls: type[Body]) -> KeptBody[Body]:
        """Return the body of a request whose answer is kept. Raises as `read`."""
        found = await self.read_text_as(request, partial(_read_keyed, cls, request.url.path))
        body, names, digest = found.body
        note_ignored(request.scope, names)
        return KeptBody(body, found.text, digest)

    async def read_text_as(
        self, request: Request, shaped: Callable[[dict[str, Any]], Result]
    ) -> KeptBody[Result]:
        """Return what `shaped` makes of the object in the body, and its text. Raises as `read_as`.
        The caller looks after the key of the request."""
        chunks = await read_body(request, self._max_bytes)
        return KeptBody(await self._shaped(request, chunks, shaped), b"".join(chunks))

    async def read_again(self, text: bytes, cls: type[Body]) -> Body:
        """Return the body of a request that was read before, by another frontend."""
        body, _ = await self.read_again_as(text, partial(_read, cls))
        return body

    async def read_again_as(
        self, text: bytes, shaped: Callable[[dict[str, Any]], Result]
    ) -> Result:
        """Return what `shaped` makes of the object in a body that was read before."""
        return await self._json.read(current_tenant(), [text], shaped)

    async def read_as(self, request: Request, shaped: Callable[[dict[str, Any]], Result]) -> Result:
        """Return what `shaped` makes of the object in the body, maybe in a thread. Raises what
        `shaped` raises, and what `read` raises."""
        if IDEMPOTENCY_KEY in request.headers:
            # Its client counts on it.
            note_ignored(request.scope, [IDEMPOTENCY_KEY])
        return await self._read(request, shaped)

    async def _read(self, request: Request, shaped: Callable[[dict[str, Any]], Result]) -> Result:
        return await self._shaped(request, await read_body(request, self._max_bytes), shaped)

    async def _shaped(
        self, request: Request, chunks: list[bytes], shaped: Callable[[dict[str, Any]], Result]
    ) -> Result:
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
