"""Gives the system advice about the memory of tensors; does nothing outside of Linux."""

import ctypes
import mmap
import sys

from torch import Tensor

_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def use_large_pages(tensor: Tensor) -> None:
    """Ask for large pages for `tensor`, which was not written yet.

    Blocks that are read in any order then miss the translation cache less often.
    """
    _advise(tensor, getattr(mmap, "MADV_HUGEPAGE", None))


def release_pages(tensor: Tensor) -> None:
    """Drop the pages within `tensor`, a view of a mapped file.

    A later read of the tensor reads the file again.
    """
    _advise(tensor, getattr(mmap, "MADV_DONTNEED", None))


def _advise(tensor: Tensor, advice: int | None) -> None:
    """Give advice on the whole pages from the first to the last number of `tensor`.

    Advice that is refused changes nothing.
    """
    if _LIBC is None or advice is None:
        return
    begin = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    size = 1 + sum((count - 1) * stride for count, stride in strides) if tensor.numel() else 0
    end = (tensor.data_ptr() + size * tensor.element_size()) // mmap.PAGESIZE
    length = end * mmap.PAGESIZE - begin
    if length > 0:
        _LIBC.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), advice)
