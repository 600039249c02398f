"""Advice to the system about the memory of tensors; where it is not Linux, none is given."""

import ctypes
import mmap
import sys

from torch import Tensor

_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def use_large_pages(tensor: Tensor) -> None:
    """Ask for large pages where `tensor`, which was not written yet, lies; blocks that are read in
    any order miss the translation cache less."""
    _advise(tensor, getattr(mmap, "MADV_HUGEPAGE", None))


def release_pages(tensor: Tensor) -> None:
    """Drop the pages that lie within `tensor`, a view of a mapped file; reading it again reads the
    file again."""
    _advise(tensor, getattr(mmap, "MADV_DONTNEED", None))


def _advise(tensor: Tensor, advice: int | None) -> None:
    """Give advice on the whole pages within `tensor`; where it is not taken, nothing changes."""
    if _LIBC is None or advice is None:
        return
    begin = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (tensor.data_ptr() + tensor.numel() * tensor.element_size()) // mmap.PAGESIZE
    length = end * mmap.PAGESIZE - begin
    if length > 0:
        _LIBC.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), advice)
