"""Reads memory of its own process, in the place of a library that reads that of others."""

import ctypes
import threading
from typing import Any

from torch import Tensor

from pagewire_shared.errors import UnavailableError
from pagewire_shared.kv.transport import KvTransport
from pagewire_worker.transfer_engines.engine import LentMemory, RegisteredMemory


class ProcessEngine:
    """An engine for both ends of a transfer within one process.

    Attributes:
        can_reach, can_lend: Without them it fails there.
        reads_left: Reads until it fails; None for never.
        gate: While it is not set, a read hangs, and then writes late.
        num_reads: Reads that were begun.
        description: Of what it lends.
        calls: Those of `reach` and `forget`, in order.
    """

    transport = KvTransport.NIXL

    def __init__(self) -> None:
        self.can_reach = self.can_lend = True
        self.reads_left: int | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.num_reads = 0
        self.description = b"here"
        self.calls: list[str] = []
        self.registered = RegisteredMemory()

    def lend(self, memory: Tensor) -> LentMemory:
        if not self.can_lend:
            raise UnavailableError("it lends nothing")
        self.register(memory)
        return LentMemory(self.transport, self.description, memory.data_ptr(), memory.numel())

    def register(self, memory: Tensor) -> None:
        self.registered.add(memory.data_ptr(), memory)

    def reach(self, there: LentMemory) -> Any:
        if not self.can_reach:
            raise UnavailableError("it reaches nobody")
        self.calls.append(f"reach {there.description.decode()}")
        return there.description

    def read(self, peer: Any, there: int, here: int, num_bytes: int) -> None:
        self.num_reads += 1
        if self.reads_left is not None:
            if not self.reads_left:
                raise UnavailableError("it reads nothing")
            self.reads_left -= 1
        with self.registered.reading():
            self.gate.wait()
            ctypes.memmove(here, there, num_bytes)

    def forget(self, peer: Any) -> None:
        self.calls.append(f"forget {peer.decode()}")

    def close(self) -> None:
        self.registered.take_all()
