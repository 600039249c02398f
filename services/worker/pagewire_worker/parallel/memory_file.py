"""Makes files of memory that processes of a host share. Imports no torch."""

import os
import tempfile
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """The file of the memory of a group, gone with the last process that has it.

    Attributes:
        slot_bytes: Of the part of one rank in a collective.
    """

    fd: int
    num_bytes: int
    slot_bytes: int

    @classmethod
    def new(cls, label: str, num_bytes: int, slot_bytes: int) -> "MemoryFile":
        """Return a new file; see `new_file`."""
        return cls(new_file(label, num_bytes), num_bytes, slot_bytes)


def new_file(label: str, num_bytes: int) -> int:
    """Return a file of zeros without a name; `label` is for those who look at processes."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(label)
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, num_bytes)
    return fd
