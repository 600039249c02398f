"""Reads JSON bodies: small ones in the event loop, large ones one at a time in another process. A
large body so does not delay the streams of other requests."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from pagewire_frontend.http.body.json_body import parse_object
from pagewire_frontend.http.body.json_link import JsonLink, ParserEndedError
from pagewire_frontend.prompts.text_threads import LONG_BYTES, TextThreads
from pagewire_shared.errors import InternalError, InvalidRequestError, UnavailableError
from pagewire_shared.exhaustion import fault_of

_logger = logging.getLogger(__name__)

LARGE_BYTES: Final = LONG_BYTES
"""From this size on a body is parsed in the other process. Below it parsing takes at most some ten
milliseconds, and mostly less than one."""
MAX_WAITING_BYTES: Final = 256 * 1024**2
"""Most bytes of large bodies that wait or are read. One tenant has half of them, and two of the
largest bodies always fit."""
NUM_ATTEMPTS: Final = 2
"""The process may die once for reasons outside of the body."""

Result = TypeVar("Result")


class JsonReader:
    """Starts its process when it is first needed, and again after each that ended. `close` it.

    Args:
        max_body_bytes: The largest body that is ever read.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self._threads = TextThreads(
            max(MAX_WAITING_BYTES, 2 * max_body_bytes), what="large bodies wait to be read"
        )
        self._link: JsonLink | None = None
        self._is_closed = False

    async def read(
        self,
        tenant: str | None,
        chunks: Sequence[bytes],
        shaped: Callable[[dict[str, Any]], Result],
    ) -> Result:
        """Return what `shaped` makes of the object in a body; if cancelled while it waits, it never
        begins.

        Args:
            shaped: Converts the object; for a large body it runs in a thread.

        Raises:
            InvalidRequestError: See `parse_object`; and what `shaped` raises.
            OverloadedError: Too many large bodies wait already.
        """
        if not is_large(chunks):
            return shaped(parse_object(b"".join(chunks)))
        work = partial(self._read_large, chunks, shaped)
        return await self._threads.run(tenant, _size(chunks), work)

    def close(self) -> None:
        """End the process."""
        self._is_closed = True
        self._threads.close()
        if self._link is not None:
            self._link.kill()

    def _read_large(
        self, chunks: Sequence[bytes], shaped: Callable[[dict[str, Any]], Result]
    ) -> Result:
        return shaped(self._parsed(chunks))

    def _parsed(self, chunks: Sequence[bytes]) -> dict[str, Any]:
        # Runs in the one thread for long work, so that questions never overlap.
        for _ in range(NUM_ATTEMPTS):
            link = self._running()
            try:
                return link.parse(chunks)
            except InvalidRequestError:
                raise
            except BaseException as error:
                # The rest of its answer must not be read as the next one.
                self._link = None
                link.kill()
                if not isinstance(error, ParserEndedError):
                    raise
                if not self._is_closed:
                    _logger.warning("the parser of bodies %d ended in its work", link.pid)
        raise InternalError("the parser of large bodies ended twice while it read this one")

    def _running(self) -> JsonLink:
        link = self._link
        if link is None and not self._is_closed:
            try:
                link = self._link = JsonLink()
            except OSError as error:
                raise fault_of(error, f"no parser of bodies can be started: {error}") from error
        if link is None or self._is_closed:
            # The reader may have been closed while the process was started.
            if link is not None:
                link.kill()
            raise UnavailableError("this frontend ends; ask again", retry_after_ms=0)
        return link


def is_large(chunks: Sequence[bytes]) -> bool:
    """Return whether a body waits for its turn."""
    return _size(chunks) >= LARGE_BYTES


def _size(chunks: Sequence[bytes]) -> int:
    return sum(map(len, chunks))
