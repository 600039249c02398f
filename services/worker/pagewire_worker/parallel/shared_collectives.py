"""Collectives of the processes of a group, through memory that those of a host share.

Other hosts get the same bytes over connections (cpu_kernels/kernels/hosts.cpp).

Sums are made in float32 and by one tree over the ranks, so their bits do not depend on who comes
first.
cpu_kernels/kernels/group.cpp does the work: it also watches that the processes of ranks run.
"""

import ctypes
import os
from typing import Final

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.collectives import RankLostError, RankTopology
from pagewire_worker.cpu_kernels.library import pointer
from pagewire_worker.host.cpu import num_physical_cores
from pagewire_worker.parallel.group_memory import GroupMemory, group_library

NAME = "shared-memory-2"

AWAKE_SECONDS: Final = 0.001
"""About as long as rank 0 takes from one step to the next."""
_SPARE_CORES: Final = 2
"""For the processes beside the ranks."""


class SharedCollectives:
    """One rank's view of its group: of the ranks of its stage, of the stages beside it, and of all.

    Args:
        timeout_ms: Most time that a collective waits for a rank whose process runs.
    """

    name = NAME

    def __init__(self, memory: GroupMemory, topology: RankTopology, timeout_ms: int) -> None:
        self.topology = topology
        self._memory = memory
        self._library = group_library()
        self._group = self._library.pw_group_new(
            memory.address,
            topology.rank,
            topology.size,
            topology.num_stages,
            memory.slot_bytes,
            timeout_ms,
        )
        if not self._group:
            raise StartupError("no thread can be started for a rank")
        self._stage = self._library.pw_group_stage(self._group)

    def join_host(self, fd: int, ranks: range, peer: int) -> None:
        """Reach the `ranks` of another host, before their first collective.

        Args:
            fd: A connected socket, which this object owns from now on.
            peer: The rank whose words come by it: that of the same place in its host.

        Raises:
            StartupError: No thread can be started.
        """
        first, size = ranks.start, len(ranks)
        if not self._library.pw_group_join_host(self._group, fd, first, size, peer):
            os.close(fd)
            raise StartupError("no thread can be started for a host of ranks")

    @property
    def handle(self) -> int:
        """Address of the structure for the kernels (PwGroup), of the ranks of this stage."""
        assert self._group is not None, "the group is closed"
        stage: int = self._stage
        return stage

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

    def use_spare_cores(self, num_threads: int) -> None:
        """Let waits stay awake for a while if this host has cores to spare.

        Args:
            num_threads: Of the model, in all ranks of this host.
        """
        if num_threads + _SPARE_CORES <= num_physical_cores():
            self.stay_awake(AWAKE_SECONDS)

    def stay_awake(self, seconds: float) -> None:
        """Let each wait of this rank keep its core for so long, unless others want it."""
        self._library.pw_group_yield(self._group, int(seconds * 1e9))

    def check(self) -> None:
        """Raise RankLostError if a rank is lost: what was computed with it means nothing."""
        self._require(self.lost is None)

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum of `x` of all ranks."""
        total = x.float().contiguous()
        self._require(
            self._library.pw_all_reduce(self._stage, pointer(total), total.numel()),
        )
        return total.to(x.dtype)

    def all_gather(self, x: Tensor, dim: int) -> Tensor:
        """Return `x` of all ranks, one behind the other along `dim`."""
        return torch.cat(self._gathered(self._stage, self.topology.tp_size, x), dim)

    def gather_all(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return `x` of all ranks of all stages, by rank."""
        return self._gathered(self._group, self.topology.size, x)

    def _gathered(self, group: int | None, size: int, x: Tensor) -> tuple[Tensor, ...]:
        own = x.contiguous()
        every = own.new_empty((size, *own.shape))
        self._require(self._library.pw_all_gather(group, pointer(own), own.nbytes, pointer(every)))
        return every.unbind(0)

    def broadcast(self, x: Tensor, root: int) -> Tensor:
        """Return `x` of the rank `root`."""
        own = x.contiguous()
        self._require(self._library.pw_broadcast(self._stage, pointer(own), own.nbytes, root))
        return own

    def pass_on(self, x: Tensor) -> None:
        """Give `x` to the next stage; waits while that has several others of it to take."""
        own = x.contiguous()
        self._require(self._library.pw_pass_on(self._group, pointer(own), own.nbytes))

    def take(self, x: Tensor) -> None:
        """Fill `x`, which is contiguous, with what the stage before passes on."""
        self._require(self._library.pw_take(self._group, pointer(x), x.nbytes))

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
