"""Reads memory of other workers with Mooncake's transfer engine, over TCP."""

import importlib
import os
from typing import Any, Final

from torch import Tensor

from pagewire_shared.errors import StartupError, UnavailableError
from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.transfer_engines.engine import LentMemory, RegisteredMemory

LIBRARY: Final = "mooncake.engine"
_ENVIRONMENT: Final = {"MC_LOG_LEVEL": "ERROR", "MC_TRANSFER_TIMEOUT": "10"}
"""Unless an operator sets them; the time-out of a transfer is in seconds."""


class MooncakeEngine:
    """An engine of Mooncake, which needs no metadata server.

    Args:
        host: The address of this machine for other workers.

    Raises:
        StartupError: The package is not installed, or does not start.
    """

    transport = KvTransport.MOONCAKE

    def __init__(self, host: str) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            library = importlib.import_module(LIBRARY)
        except (ImportError, OSError) as error:
            raise StartupError(
                f"--kv-transport mooncake: {error}; pip install 'pagewire[mooncake]' brings the"
                " package, which needs the system's libibverbs1",
                field="kv_transport",
            ) from error
        self._host = host
        self._engine: Any = library.TransferEngine()
        status = self._engine.initialize(host, "P2PHANDSHAKE", "tcp", "")
        if status:
            raise StartupError(
                f"--kv-transport mooncake: the engine does not start ({status})",
                field="kv_transport",
            )
        self._registered = RegisteredMemory()

    def lend(self, memory: Tensor) -> LentMemory:
        """See TransferEngine."""
        self.register(memory)
        host = f"[{self._host}]" if ":" in self._host else self._host
        description = f"{host}:{self._engine.get_rpc_port()}".encode()
        return LentMemory(self.transport, description, memory.data_ptr(), memory.numel())

    def register(self, memory: Tensor) -> None:
        """See TransferEngine."""
        status = self._engine.register_memory(memory.data_ptr(), memory.numel())
        if status:
            raise UnavailableError(f"Mooncake's engine registers no memory ({status})")
        self._registered.add(memory.data_ptr(), memory)

    def reach(self, there: LentMemory) -> Any:
        """See TransferEngine."""
        return there.description.decode(errors="replace")

    def read(self, peer: Any, there: int, here: int, num_bytes: int) -> None:
        """See TransferEngine."""
        with self._registered.reading():
            status = self._engine.transfer_sync_read(peer, here, there, num_bytes)
        if status:
            raise UnavailableError(f"Mooncake's engine reads nothing ({status})")

    def forget(self, peer: Any) -> None:
        """See TransferEngine."""

    def close(self) -> None:
        """See TransferEngine."""
        for address in self._registered.take_all():
            self._engine.unregister_memory(address)
