"""Calls the library of Mooncake Store. Every call blocks, and belongs into a thread.

Blocks pass through buffers that are registered with the library once. A buffer belongs to one call
at a time, so what arrives after a deadline is written into no block.
"""

import ctypes
import importlib
import mmap
import os
from collections.abc import Sequence
from typing import Any, Final, Protocol

from pagewire_shared.errors import StartupError, UnavailableError
from pagewire_worker.connectors.mooncake_settings import MooncakeSettings

NUM_BUFFERS: Final = 8
LIBRARY: Final = "mooncake.store"
_FIELD: Final = "kv_connector"
_ENVIRONMENT: Final = {
    "MC_LOG_LEVEL": "ERROR",  # it writes to standard error, some lines for each client
    "MC_STORE_CLIENT_METRIC": "0",
    "MC_TRANSFER_TIMEOUT": "10",  # seconds, until the thread of a transfer is free again
}
"""Settings of the library that an operator may set otherwise."""


class MooncakeClient(Protocol):
    """What the connector uses of a client. Every method may block.

    Attributes:
        buffers: Memory for blocks on their way.
    """

    buffers: Sequence[memoryview]

    def put(self, buffer: int, keys: Sequence[str], slot: int, sizes: Sequence[int]) -> list[int]:
        """Store the slots of a buffer under `keys`; return 0 or an error for each."""
        ...

    def get(self, buffer: int, keys: Sequence[str], slot: int) -> list[int]:
        """Fill the slots of a buffer; return the length or an error for each."""
        ...

    def exist(self, keys: Sequence[str]) -> list[int]:
        """Return 1 for a key that is there, 0 for one that is missing, or an error, for each."""
        ...

    def remove(self, keys: Sequence[str]) -> None:
        """Remove keys, as far as the store does."""
        ...

    def close(self) -> None:
        """Take back the memory that was lent."""
        ...


class LibraryClient:
    """A client with the library; it lends memory to the store until it is closed.

    Args:
        buffer_bytes: Size of each buffer.

    Raises:
        UnavailableError: The master or the metadata server cannot be reached.
    """

    def __init__(self, settings: MooncakeSettings, buffer_bytes: int) -> None:
        library = import_library()
        self._buffer_bytes = buffer_bytes
        self._region = mmap.mmap(-1, NUM_BUFFERS * buffer_bytes)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._region))
        view = memoryview(self._region)
        self.buffers: Sequence[memoryview] = [
            view[start : start + buffer_bytes] for start in range(0, len(view), buffer_bytes)
        ]
        self._replicas = library.ReplicateConfig()
        self._replicas.replica_num = settings.replica_num
        self._store = library.MooncakeDistributedStore()
        status = self._store.setup(
            settings.local_hostname,
            settings.metadata_server,
            settings.global_segment_size,
            settings.local_buffer_size,
            settings.protocol,
            settings.device_name,
            settings.master_server_address,
        )
        if status == 0:
            status = self._store.register_buffer(self._address, len(view))
        if status != 0:
            raise UnavailableError(
                f"Mooncake's master at {settings.master_server_address} takes no client: error"
                f" {status}"
            )

    def put(self, buffer: int, keys: Sequence[str], slot: int, sizes: Sequence[int]) -> list[int]:
        places = self._places(buffer, len(keys), slot)
        return list(self._store.batch_put_from(list(keys), places, list(sizes), self._replicas))

    def get(self, buffer: int, keys: Sequence[str], slot: int) -> list[int]:
        places = self._places(buffer, len(keys), slot)
        return list(self._store.batch_get_into(list(keys), places, [slot] * len(keys)))

    def exist(self, keys: Sequence[str]) -> list[int]:
        return list(self._store.batch_is_exist(list(keys)))

    def remove(self, keys: Sequence[str]) -> None:
        self._store.batch_remove(list(keys), True)

    def close(self) -> None:
        self._store.close()

    def _places(self, buffer: int, num: int, slot: int) -> list[int]:
        assert num * slot <= self._buffer_bytes, "slots lie in their buffer"
        start = self._address + buffer * self._buffer_bytes
        return [start + index * slot for index in range(num)]


def import_library() -> Any:
    """Return the library. Raises StartupError where it is not installed."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module(LIBRARY)
    except ImportError as error:
        raise StartupError(
            f"--kv-connector mooncake: {error}; pip install 'pagewire[mooncake]', and the system's"
            " libibverbs1",
            field=_FIELD,
        ) from error
