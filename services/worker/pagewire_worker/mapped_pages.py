"""Gives back the memory of a mapped file that has been read; does nothing where not on Linux."""

import ctypes
import mmap
import sys

from torch import Tensor

_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def release_pages(tensor: Tensor) -> None:
    """Drop the pages that lie within `tensor`, a view of a mapped file; reading it again reads the
    file again."""
    if _LIBC is None:
        return
    begin = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (tensor.data_ptr() + tensor.numel() * tensor.element_size()) // mmap.PAGESIZE
    length = end * mmap.PAGESIZE - begin
    if length > 0:
        # It is advice: where it is not taken, the pages stay until the file is closed.
        _LIBC.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), mmap.MADV_DONTNEED)
