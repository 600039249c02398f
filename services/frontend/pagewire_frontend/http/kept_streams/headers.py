"""The headers of kept streams, and what the one says that tells what becomes of a stream whose
client leaves."""

from typing import Final

from fastapi import Request

from pagewire_shared.errors import InvalidRequestError

ON_DISCONNECT: Final = "x-pagewire-on-disconnect"
LAST_EVENT_ID: Final = "last-event-id"
_CONTINUE: Final = "continue"
_ABORT: Final = "abort"


def goes_on(request: Request, *, is_streamed: bool, keeps_any: bool) -> bool:
    """Return whether the stream of a request goes on without its client.

    Args:
        is_streamed: Whether the answer is a stream.
        keeps_any: Whether this server keeps streams.

    Raises:
        InvalidRequestError: The header has another value, or asks for what is not there.
    """
    value = request.headers.get(ON_DISCONNECT, _ABORT)
    return continues(value, is_streamed=is_streamed, keeps_any=keeps_any)


def continues(value: str, *, is_streamed: bool, keeps_any: bool) -> bool:
    """Return whether a stream goes on whose request has this value of the header; see goes_on."""
    if value == _ABORT:
        return False
    reason = None
    if value != _CONTINUE:
        reason = f"must be {_CONTINUE} or {_ABORT}, got {value[:100]!r}"
    elif not is_streamed:
        reason = "only a stream goes on: stream must be true"
    elif not keeps_any:
        reason = "this server keeps no streams: --stream-retention-seconds is 0"
    if reason is not None:
        raise InvalidRequestError(f"{ON_DISCONNECT}: {reason}", field=ON_DISCONNECT)
    return True
