"""Reads the staging memory of another worker through a library, into buffers of this worker.

A buffer belongs to one call of the library until that ends, so what comes late, from a worker that
hangs or was given up, is written into no block.
"""

import threading
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from pagewire_shared.errors import DeadlineError, UnavailableError, WireError
from pagewire_shared.kv.layers_convert import MAX_DATA_BYTES
from pagewire_worker.offload.blocking_calls import BlockingCalls
from pagewire_worker.transfer_engines.engine import LentMemory, TransferEngine

NUM_BUFFERS: Final = 8
BUFFER_BYTES: Final = MAX_DATA_BYTES
READ_SECONDS: Final = 2.0
"""For one read, of a megabyte most often, after which the library counts as failed."""


class EngineReads:
    """The reads of one worker: one library, some buffers, and a thread for each call."""

    def __init__(self, engine: TransferEngine) -> None:
        self.engine = engine
        self.calls = BlockingCalls(f"the {engine.transport.value} transport", NUM_BUFFERS)
        self._guard = threading.Lock()
        self._memory: torch.Tensor | None = None
        self._free: list[int] = []

    async def open(self, there: LentMemory, before: "RemoteMemory | None" = None) -> "RemoteMemory":
        """Return the memory of another worker; let go of what it lent `before` that, since a
        library knows a process by one name. Raises UnavailableError."""
        peer = await self.calls.begin(lambda: self._reach(there, before))
        return RemoteMemory(self, peer, there)

    def _reach(self, there: LentMemory, before: "RemoteMemory | None") -> Any:
        if before is not None:
            self.engine.forget(before.peer)
        with self._guard:
            if self._memory is None:
                memory = torch.zeros(NUM_BUFFERS * BUFFER_BYTES, dtype=torch.uint8)
                self.engine.register(memory)
                self._memory = memory
                self._free = [BUFFER_BYTES * number for number in range(NUM_BUFFERS)]
        return self.engine.reach(there)

    def read(self, peer: Any, address: int, num_bytes: int) -> "npt.NDArray[np.uint8]":
        """Return a copy of memory of another worker; in a thread. Raises UnavailableError."""
        memory = self._memory
        assert memory is not None, "nothing was opened"
        found = np.empty(num_bytes, dtype=np.uint8)
        # As many calls as buffers: there is one.
        with self._guard:
            offset = self._free.pop()
        try:
            for begin in range(0, num_bytes, BUFFER_BYTES):
                size = min(BUFFER_BYTES, num_bytes - begin)
                here = memory.data_ptr() + offset
                self.engine.read(peer, address + begin, here, size)
                found[begin : begin + size] = memory[offset : offset + size].numpy()
        finally:
            with self._guard:
                self._free.append(offset)
        return found


class RemoteMemory:
    """Memory that another worker lends.

    Attributes:
        is_doubtful: Whether it could not be read as it was described.
        peer: What the library calls the worker.
    """

    def __init__(self, reads: EngineReads, peer: Any, there: LentMemory) -> None:
        self.is_doubtful = False
        self.there = there
        self.peer = peer
        self._reads = reads

    async def read(self, offset: int, num_bytes: int) -> "npt.NDArray[np.uint8]":
        """Return a copy of some bytes, uint8 [num_bytes].

        Raises:
            WireError: They lie outside.
            UnavailableError: They have not come.
        """
        if offset + num_bytes > self.there.num_bytes:
            self.is_doubtful = True
            raise WireError(f"offsets: {num_bytes} bytes at {offset} are outside the lent memory")
        address = self.there.address + offset
        try:
            return await self._reads.calls.run(
                lambda: self._reads.read(self.peer, address, num_bytes), READ_SECONDS
            )
        except UnavailableError:
            self.is_doubtful = True
            raise
        except DeadlineError as error:
            self.is_doubtful = True
            raise UnavailableError(error.message) from error

    def close(self) -> None:
        """Let go of the other worker, in a thread."""
        try:
            self._reads.calls.begin(lambda: self._reads.engine.forget(self.peer))
        except UnavailableError:
            return  # the library is stuck, and knows the worker for longer
