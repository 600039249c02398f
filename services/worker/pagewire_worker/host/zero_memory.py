"""Gives large zeroed arrays of main memory at once, and has their pages made in the background.

The system makes a page when it is first touched, at one or two gigabytes a second. A worker whose
cache was touched while it loaded waited for that longer than for its weights. Now a thread of the
lowest priority does it (MADV_POPULATE_WRITE, which leaves the contents as they are), soon after,
beside the work: a later step finds the pages there, and too little memory is noticed early.
"""

import ctypes
import logging
import math
import mmap
import os
import sys
import threading
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from pagewire_worker.host.memory_advice import use_large_pages

_POPULATE_WRITE: Final = 23
"""MADV_POPULATE_WRITE, since Linux 5.14."""

_SLICE_BYTES: Final = 4 << 20
"""Bytes per call: other threads of the process cannot map memory during one."""

_SMALL_BYTES: Final = 1 << 20
"""Arrays below it are touched at once."""

_logger = logging.getLogger(__name__)


def zeros_soon(sizes: Sequence[Sequence[int]], dtype: torch.dtype) -> list[Tensor]:
    """Return arrays of zeros in main memory, one per size, whose pages a thread makes, in order.

    Where the system cannot do that, the pages are made before this returns.
    """
    if not _can_populate():
        return [_touched(size, dtype) for size in sizes]
    arrays = [_mapped(size, dtype) for size in sizes]
    if any(array.nbytes >= _SMALL_BYTES for array in arrays):
        # A list of its own, which the thread empties.
        asked = list(arrays)
        threading.Thread(target=_touch, args=(asked,), name="touch-memory", daemon=True).start()
    return arrays


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


def _touch(arrays: list[Tensor]) -> None:
    """Make the pages of `arrays`, and let each go afterwards: this thread keeps none alive."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    arrays.reverse()
    while arrays:
        array = arrays.pop()
        if array.nbytes < _SMALL_BYTES:
            continue
        begin, end = array.data_ptr(), array.data_ptr() + array.nbytes
        for address in range(begin, end, _SLICE_BYTES):
            error = _populate(address, min(_SLICE_BYTES, end - address))
            if error:
                # The pages are made when they are used, or the system ends the process then.
                _logger.warning("memory of the KV cache is not there yet: %s", os.strerror(error))
                return


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
