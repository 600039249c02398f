"""Zeroed arrays of main memory whose pages are made later, in the background.

The system makes a page when it is first touched, at one or two gigabytes a second: for a cache of
keys and values that takes longer than to load a small model. So a worker gets ready first, and then
a thread makes the pages (MADV_POPULATE_WRITE, which leaves what they hold as it is): a later step
finds them there, and too little memory is noticed early.
"""

import ctypes
import logging
import math
import mmap
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from pagewire_worker.host.memory_advice import use_large_pages

_POPULATE_WRITE: Final = 23
"""MADV_POPULATE_WRITE, since Linux 5.14."""

_SLICE_BYTES: Final = 4 << 20
"""Bytes per call: other threads of the process cannot map memory during one. After each the thread
sleeps for as long as it took, since steps have begun."""

_SMALL_BYTES: Final = 1 << 20
"""Arrays below it are not worth a call."""

_logger = logging.getLogger(__name__)


def zeros(sizes: Sequence[Sequence[int]], dtype: torch.dtype) -> list[Tensor]:
    """Return arrays of zeros in main memory, one per size, for a TouchThread.

    Where the system cannot make pages later, they are made before this returns.
    """
    make = _mapped if _can_populate() else _touched
    return [make(size, dtype) for size in sizes]


class TouchThread:
    """Makes the pages of arrays that `zeros` returned, in their order."""

    def __init__(self, arrays: Sequence[Tensor]) -> None:
        large = [array for array in arrays if array.nbytes >= _SMALL_BYTES]
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        if large and _can_populate():
            self._thread = threading.Thread(
                target=_touch, args=(large, self._is_over), name="touch-memory", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Make no more pages, and let go of the arrays before this returns."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()


def _touched(size: Sequence[int], dtype: torch.dtype) -> Tensor:
    tensor = torch.empty(size, dtype=dtype)
    use_large_pages(tensor)
    return tensor.zero_()


def _mapped(size: Sequence[int], dtype: torch.dtype) -> Tensor:
    num_bytes = math.prod(size) * dtype.itemsize
    if num_bytes < _SMALL_BYTES:
        return torch.zeros(size, dtype=dtype)
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    tensor = torch.frombuffer(memory, dtype=torch.uint8)
    use_large_pages(tensor)
    return tensor.view(dtype).view(size)


def _touch(arrays: list[Tensor], is_over: threading.Event) -> None:
    """Make the pages of `arrays`, and let each go afterwards: this thread keeps none alive."""
    arrays.reverse()
    while arrays:
        array = arrays.pop()
        begin, end = array.data_ptr(), array.data_ptr() + array.nbytes
        for address in range(begin, end, _SLICE_BYTES):
            if is_over.is_set():
                return
            began = time.monotonic()
            error = _populate(address, min(_SLICE_BYTES, end - address))
            if error:
                # The pages are made when they are used, or the system ends the process then.
                _logger.warning("memory of the KV cache is not there yet: %s", os.strerror(error))
                return
            time.sleep(time.monotonic() - began)


def _can_populate() -> bool:
    if sys.platform != "linux":
        return False
    page = torch.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), dtype=torch.uint8)
    return not _populate(page.data_ptr(), mmap.PAGESIZE)


def _populate(address: int, num_bytes: int) -> int:
    """Make the pages of a mapped range without a change to what it holds; return errno, or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Without the interpreter lock.
    failed = libc.madvise(
        ctypes.c_void_p(address), ctypes.c_size_t(num_bytes), ctypes.c_int(_POPULATE_WRITE)
    )
    return ctypes.get_errno() if failed else 0
