"""Memory that the ranks of a group on one host share.

It has no name, so the system frees it with the last of their processes, however they end.
"""

import ctypes
import mmap
import os
from typing import Final

from pagewire_shared.errors import StartupError
from pagewire_worker.cpu_kernels.library import KernelsMissingError, load_library
from pagewire_worker.parallel.memory_file import MemoryFile

SLOT_BYTES: Final = 4 * 1024**2
"""Of the part of one rank in a collective; longer ones go in pieces. A group of 2 takes up to
24 MiB, and one of two stages 72."""


def group_library() -> ctypes.CDLL:
    """Return the compiled functions of groups. Raises StartupError without them."""
    try:
        return load_library()
    except KernelsMissingError as error:
        raise StartupError(
            f"--tensor-parallel-size, --pipeline-parallel-size: ranks need the compiled kernels:"
            f" {error}",
            field="tensor_parallel_size",
        ) from error


class GroupMemory:
    """Zeros at first, in pages that are made when they are written.

    Args:
        size: Ranks of the group.
        fd: Of memory that another rank has made; None to make it.
        num_stages: Of the model, which its ranks have between them.

    Attributes:
        file: To inherit to the processes of other ranks of the host.
        address: Of its first byte.
    """

    def __init__(
        self,
        size: int,
        fd: int | None = None,
        slot_bytes: int = SLOT_BYTES,
        *,
        num_stages: int = 1,
    ) -> None:
        self.slot_bytes = slot_bytes
        num_bytes = group_library().pw_group_bytes(size, num_stages, slot_bytes)
        self.file = (
            MemoryFile.new("pagewire-ranks", num_bytes, slot_bytes)
            if fd is None
            else MemoryFile(fd, num_bytes, slot_bytes)
        )
        self.address = _map(self.file.fd, num_bytes)

    def close_file(self) -> None:
        """Close the file; this process and its children keep the memory."""
        os.close(self.file.fd)

    def unmap(self) -> None:
        """Give the memory back; nothing may use it any more. Otherwise it lives as the process."""
        _LIBC.munmap(ctypes.c_void_p(self.address), ctypes.c_size_t(self.file.num_bytes))


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_FAILED: Final = ctypes.c_void_p(-1).value


def _map(fd: int, num_bytes: int) -> int:
    """Return the address of a shared mapping, which no object of Python owns.

    Threads of the kernels use it until the process ends, longer than the interpreter keeps objects.
    """
    access = mmap.PROT_READ | mmap.PROT_WRITE
    address: int | None = _LIBC.mmap(None, num_bytes, access, mmap.MAP_SHARED, fd, 0)
    if address is None or address == _FAILED:
        raise StartupError(
            "--tensor-parallel-size, --pipeline-parallel-size: no memory for ranks:"
            f" {os.strerror(ctypes.get_errno())}",
            field="tensor_parallel_size",
        )
    return address
