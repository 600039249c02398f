"""Reads memory of other workers with NIXL, over UCX: RDMA, TCP, or memory of the same host."""

import importlib
import logging
import os
import time
import uuid
from typing import Any, Final

from torch import Tensor

from pagewire_shared.errors import StartupError, UnavailableError
from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.transfer_engines.engine import LentMemory, RegisteredMemory

_MODULES: Final = ("nixl._api", "nixl_cu12._api", "nixl_cu13._api")
_ENVIRONMENT: Final = {"NIXL_LOG_LEVEL": "FATAL", "UCX_LOG_LEVEL": "fatal"}
"""Unless an operator sets them: the libraries write to standard error."""
_DEVICE: Final = 0
_MEMORY: Final = "DRAM"
ABORT_SECONDS: Final = 10.0
"""After which a read is aborted."""
_FIRST_SLEEP, _LONGEST_SLEEP = 20e-6, 1e-3


class NixlEngine:
    """An agent of NIXL.

    Raises:
        StartupError: The package is not installed, or has no UCX.
    """

    transport = KvTransport.NIXL

    def __init__(self) -> None:
        library = _library()
        # Another one after every start: peers remember agents by name.
        name = f"pagewire-{uuid.uuid4().hex}"
        try:
            config = library.nixl_agent_config(backends=["UCX"])
            self._agent: Any = library.nixl_agent(name, config)
        except Exception as error:  # the bindings raise classes of their own
            raise StartupError(f"--kv-transport: NIXL: {error}", field="kv_transport") from error
        self._registered = RegisteredMemory()

    def lend(self, memory: Tensor) -> LentMemory:
        """See TransferEngine."""
        self.register(memory)
        description = self._agent.get_agent_metadata()
        return LentMemory(self.transport, description, memory.data_ptr(), memory.numel())

    def register(self, memory: Tensor) -> None:
        """See TransferEngine."""
        try:
            self._registered.add(self._agent.register_memory(memory), memory)
        except Exception as error:
            raise UnavailableError(f"NIXL registers no memory: {error}") from error

    def reach(self, there: LentMemory) -> Any:
        """See TransferEngine."""
        try:
            return self._agent.add_remote_agent(there.description)
        except Exception as error:
            raise UnavailableError(f"NIXL does not reach the worker: {error}") from error

    def read(self, peer: Any, there: int, here: int, num_bytes: int) -> None:
        """See TransferEngine."""
        with self._registered.reading():
            self._read(peer, there, here, num_bytes)

    def _read(self, peer: Any, there: int, here: int, num_bytes: int) -> None:
        agent = self._agent
        try:
            local = agent.get_xfer_descs([(here, num_bytes, _DEVICE)], _MEMORY)
            remote = agent.get_xfer_descs([(there, num_bytes, _DEVICE)], _MEMORY)
            handle = agent.initialize_xfer("READ", local, remote, peer)
        except Exception as error:
            raise UnavailableError(f"NIXL reads nothing: {error}") from error
        try:
            agent.transfer(handle)
            self._wait(handle)
        except Exception as error:
            raise UnavailableError(f"NIXL reads nothing: {error}") from error
        finally:
            self._release(handle)

    def _wait(self, handle: Any) -> None:
        """Return when a read is done."""
        end, sleep = time.monotonic() + ABORT_SECONDS, _FIRST_SLEEP
        while (state := self._agent.check_xfer_state(handle)) == "PROC":
            if time.monotonic() > end:
                raise UnavailableError(f"it is under way for {ABORT_SECONDS:g} s")
            time.sleep(sleep)
            sleep = min(_LONGEST_SLEEP, 1.5 * sleep)
        if state != "DONE":
            raise UnavailableError(f"its state is {state}")

    def _release(self, handle: Any) -> None:
        """Let go of a read, which aborts it; return only when that has succeeded."""
        while True:
            try:
                self._agent.release_xfer_handle(handle)
            except Exception:  # noqa: BLE001 - it is still under way: its memory is not free
                time.sleep(_LONGEST_SLEEP)
            else:
                return

    def forget(self, peer: Any) -> None:
        """See TransferEngine."""
        try:
            self._agent.remove_remote_agent(peer)
        except Exception:  # noqa: BLE001 - it has gone by itself
            return

    def close(self) -> None:
        """See TransferEngine."""
        for one in self._registered.take_all():
            self._agent.deregister_memory(one)


def _library() -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    for module in _MODULES:
        try:
            library = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        except (ImportError, OSError) as error:
            raise StartupError(f"--kv-transport: NIXL: {error}", field="kv_transport") from error
        logging.getLogger(module.partition(".")[0]).setLevel(logging.WARNING)
        return library
    raise StartupError(
        "--kv-transport nixl: the package nixl is not installed; pip install 'pagewire[nixl]'"
        " brings it",
        field="kv_transport",
    )
