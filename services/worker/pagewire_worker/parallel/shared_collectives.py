"""Collectives of processes of one host, through memory that they share.

Sums are made in float32 and in the order of ranks, so their bits do not depend on who comes first.
cpu_kernels/kernels/group.cpp does the work: it also watches that the processes of ranks run.
"""

import ctypes

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.collectives import RankLostError, RankTopology
from pagewire_worker.cpu_kernels.library import pointer
from pagewire_worker.parallel.group_memory import GroupMemory, group_library

NAME = "shared-memory"


class SharedCollectives:
    """One rank's view of its group.

    Args:
        timeout_ms: Most time that a collective waits for a rank whose process runs.
    """

    name = NAME

    def __init__(self, memory: GroupMemory, topology: RankTopology, timeout_ms: int) -> None:
        self.topology = topology
        self._memory = memory
        self._library = group_library()
        rank, size = topology.tp_rank, topology.tp_size
        self._group = self._library.pw_group_new(
            memory.address, rank, size, memory.slot_bytes, timeout_ms
        )
        if not self._group:
            raise StartupError("--tensor-parallel-size: no thread can be started")

    @property
    def handle(self) -> int:
        """Address of the structure for the kernels (PwGroup)."""
        assert self._group is not None, "the group is closed"
        group: int = self._group
        return group

    @property
    def lost(self) -> int | None:
        """The rank that ended the group; None while all are well."""
        rank: int = self._library.pw_group_lost(self._group)
        return None if rank < 0 else rank

    def lose(self, rank: int) -> None:
        """End the group because of `rank`: waits of all ranks end. From any thread."""
        self._library.pw_group_lose(self._group, rank)

    def set_timeout(self, seconds: float) -> None:
        """Let collectives to come wait so long for a rank whose process runs."""
        self._library.pw_group_timeout(self._group, int(seconds * 1000))

    def check(self) -> None:
        """Raise RankLostError if a rank is lost: what was computed with it means nothing."""
        self._require(self.lost is None)

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum of `x` of all ranks."""
        total = x.float().contiguous()
        self._require(
            self._library.pw_all_reduce(self._group, pointer(total), total.numel()),
        )
        return total.to(x.dtype)

    def all_gather(self, x: Tensor, dim: int) -> Tensor:
        """Return `x` of all ranks, one behind the other along `dim`."""
        own = x.contiguous()
        every = own.new_empty((self.topology.tp_size, *own.shape))
        self._require(
            self._library.pw_all_gather(self._group, pointer(own), own.nbytes, pointer(every))
        )
        return torch.cat(every.unbind(0), dim)

    def broadcast(self, x: Tensor, root: int) -> Tensor:
        """Return `x` of the rank `root`."""
        own = x.contiguous()
        self._require(self._library.pw_broadcast(self._group, pointer(own), own.nbytes, root))
        return own

    def send(self, message: bytes) -> None:
        """Send `message`, which is not empty, from rank 0 to all others. Raises RankLostError."""
        self._require(self._library.pw_send(self._group, message, len(message)))

    def receive(self) -> bytearray:
        """Wait for the next message of rank 0. Raises RankLostError."""
        num_bytes = self._library.pw_message_bytes(self._group)
        self._require(num_bytes > 0)
        message = bytearray(num_bytes)
        place = (ctypes.c_char * num_bytes).from_buffer(message)
        self._require(self._library.pw_receive(self._group, place, num_bytes))
        return message

    def close(self) -> None:
        """Stop the watch; no thread may use the group any more."""
        if self._group:
            self._library.pw_group_free(self._group)
            self._group = None

    def _require(self, is_well: object) -> None:
        if not is_well:
            rank = self.lost
            raise RankLostError(f"rank {rank} of the group is lost")
