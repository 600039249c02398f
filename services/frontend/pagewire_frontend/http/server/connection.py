"""The client's side of one HTTP request: reads its body, within a limit, and notices when it
leaves."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from pagewire_frontend.http.server.errors import BodyTooLargeError, ClientGoneError, MediaTypeError

Result = TypeVar("Result")
_CHARSETS = ("utf-8", "utf8", "us-ascii")


async def read_body(request: Request, max_bytes: int) -> list[bytes]:
    """Return the body in the chunks that came. Raises MediaTypeError, BodyTooLargeError or
    ClientGoneError."""
    _check_media_type(request)
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > max_bytes:
        raise BodyTooLargeError(f"the body is larger than {max_bytes} bytes")
    chunks: list[bytes] = []
    num_bytes = 0
    try:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > max_bytes:
                raise BodyTooLargeError(f"the body is larger than {max_bytes} bytes")
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise ClientGoneError("the client went away") from error
    return chunks


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return what `work` returns; cancel it when the client goes away first.

    Call it only after the body was read and never twice at a time: it owns `receive`.

    Raises:
        ClientGoneError: The client left before the result.
    """
    # Cancels itself, as asyncio.timeout does: a task of its own would double the cost.
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    num_cancels = task.cancelling()
    is_gone = is_over = False

    def leave(_: "asyncio.Future[None]") -> None:
        nonlocal is_gone
        # The callback may run although it was removed: the loop had scheduled it already.
        if not is_over:
            is_gone = True
            task.cancel()

    watch = asyncio.ensure_future(_disconnected(request))
    watch.add_done_callback(leave)
    try:
        return await work
    except asyncio.CancelledError:
        if is_gone and task.uncancel() <= num_cancels:
            raise ClientGoneError("the client went away") from None
        raise
    finally:
        is_over = True
        watch.remove_done_callback(leave)
        watch.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _check_media_type(request: Request) -> None:
    """Raise MediaTypeError where the headers announce a body other than plain JSON."""
    given = request.headers.get("content-type")
    if given is not None:
        kind, *parameters = [part.strip().lower() for part in given.split(";")]
        if kind != "application/json" and not (
            kind.startswith("application/") and kind.endswith("+json")
        ):
            raise MediaTypeError(f"content-type must be application/json, got {given[:100]!r}")
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "charset" and value.strip(' "') not in _CHARSETS:
                raise MediaTypeError(f"the charset must be utf-8, got {value[:100]!r}")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise MediaTypeError(f"content-encoding {encoding[:100]!r} is not supported")
