"""Names what transports need of a library that reads memory of another process."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from torch import Tensor

from pagewire_shared.kv.transport import KvTransport

MAX_DESCRIPTION_BYTES: Final = 64 * 1024
"""Of a description; NIXL's has half a kilobyte per network interface."""


@dataclass(frozen=True, slots=True)
class LentMemory:
    """Memory of a worker that others may read.

    Attributes:
        description: What the library of the other side needs to reach it.
        address: Where it begins in the process that lends it.
    """

    transport: KvTransport
    description: bytes
    address: int
    num_bytes: int


class TransferEngine(Protocol):
    """One library in one worker. Every method may block, and belongs into a thread.

    Attributes:
        transport: Its name.
    """

    transport: KvTransport

    def lend(self, memory: Tensor) -> LentMemory:
        """Let others read `memory`, uint8 [n], until `close`. Raises UnavailableError."""
        ...

    def register(self, memory: Tensor) -> None:
        """Let `read` write into `memory`, uint8 [n], until `close`. Raises UnavailableError."""
        ...

    def reach(self, there: LentMemory) -> Any:
        """Return a name of the process that lends `there`. Raises UnavailableError."""
        ...

    def read(self, peer: Any, there: int, here: int, num_bytes: int) -> None:
        """Copy `num_bytes` from an address of `peer` to one of registered memory. It returns only
        when nothing is written there any more.

        Raises:
            UnavailableError: They have not come.
        """
        ...

    def forget(self, peer: Any) -> None:
        """Let go of a process."""
        ...

    def close(self) -> None:
        """Take all memory back; it may be lent and registered again."""
        ...


class RegisteredMemory:
    """The memory that a library knows, with what it calls it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: list[tuple[Any, Tensor]] = []
        self._num_reads = 0

    def add(self, name: Any, memory: Tensor) -> None:
        """Keep registered memory alive."""
        with self._guard:
            self._known.append((name, memory))

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Keep all of it registered meanwhile."""
        with self._guard:
            self._num_reads += 1
        try:
            yield
        finally:
            with self._guard:
                self._num_reads -= 1

    def take_all(self) -> list[Any]:
        """Return the names of all of it, to be given up; none while a read is under way, which may
        be for ever: the memory stays then."""
        with self._guard:
            if self._num_reads:
                return []
            known, self._known = self._known, []
            return [name for name, _ in known]
