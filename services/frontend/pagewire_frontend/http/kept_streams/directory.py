"""The interface to kept streams, between the HTTP endpoints and the process that holds a stream:
this one, or another of the group."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

from pagewire_frontend.http.kept_streams.log_source import LogSource


@dataclass(frozen=True, slots=True)
class StreamReading:
    """One reading of a stream.

    Attributes:
        frames: Events as they are sent, ready ones together, to the last.
        close: Called when nothing more is read; again is allowed.
        source: The same events where their log is here: written as they come, without a task.
            Either it or `frames` is read.
    """

    frames: AsyncIterator[list[bytes]]
    close: Callable[[], None]
    source: LogSource | None = None


class StreamDirectory(Protocol):
    """Kept streams by id. A tenant sees its own and no other; `None` is a tenant, too."""

    async def read(self, stream_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read a stream from event number `first` on.

        Raises:
            StreamNotFoundError: The stream is not kept, or is another tenant's.
        """
        ...

    async def forget(self, stream_id: str, tenant: str | None) -> None:
        """End a stream, if it runs, and forget it.

        Raises:
            StreamNotFoundError: The stream is not kept, or is another tenant's.
        """
        ...
