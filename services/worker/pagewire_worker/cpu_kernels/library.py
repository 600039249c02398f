"""Finds the compiled kernels, and opens pools of threads that run them."""

import ctypes
import functools
import platform
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pagewire_worker.cpu_kernels import abi, build

TYPES = {torch.float32: abi.FLOAT32, torch.bfloat16: abi.BFLOAT16}
"""Types that the kernels compute in."""


EMULATED = "amx_emulated"
"""The instruction set that computes the bits of "amx" by AVX-512. It is used only if --cpu-isa says
so."""


_EQUAL_BITS = {EMULATED: "amx", "neon_dot": "neon"}
"""Sets that compute the bits of another one, which differs in speed alone."""


class KernelsMissingError(Exception):
    """There are no kernels to run here; the text gives the reason and a remedy."""


@functools.cache
def load_library() -> ctypes.CDLL:
    """Return the library of the kernels, compiled from the sources beside it.

    Raises:
        KernelsMissingError: It was not compiled, or was compiled from other sources.
    """
    if platform.machine() not in build.MACHINES:
        raise KernelsMissingError(f"there are none for {platform.machine()}")
    again = (
        "install a C++ compiler (Debian: g++) and run: python -m pagewire_worker.cpu_kernels.build"
    )
    if not build.LIBRARY.is_file():
        raise KernelsMissingError(f"they were not compiled when Pagewire was installed; {again}")
    try:
        library = ctypes.CDLL(str(build.LIBRARY))
        for name, (result, arguments) in abi.FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        made_of = library.pw_source_hash().decode()
    except (OSError, AttributeError) as error:
        raise KernelsMissingError(f"they cannot be loaded ({error}); {again}") from error
    if made_of != build.source_hash():
        raise KernelsMissingError(f"they were compiled of other sources; {again}")
    return library


def instruction_sets() -> dict[str, int]:
    """Return names and numbers of the instruction sets that run here, the newest first.

    Raises:
        KernelsMissingError: There is no library, or no instruction set runs.
    """
    library, found, number = load_library(), {}, 0
    while (name := library.pw_isa_name(number)) is not None:
        if library.pw_isa_runs(number):
            found[name.decode()] = number
        number += 1
    if not found:
        raise KernelsMissingError("this processor has no AVX2")
    return found


class KernelPool:
    """Threads that run the kernels of one instruction set; one caller at a time.

    Args:
        instruction_set: Name of the set; by default the newest that runs here.

    Raises:
        KernelsMissingError: There are no kernels, or not for this instruction set.
    """

    def __init__(self, num_threads: int, instruction_set: str | None = None) -> None:
        sets = instruction_sets()
        self.instruction_set = next(iter(sets)) if instruction_set is None else instruction_set
        if self.instruction_set not in sets:
            raise KernelsMissingError(f"{self.instruction_set} does not run here")
        self._library = load_library()
        self._pool = self._library.pw_pool_new(sets[self.instruction_set], num_threads)
        if not self._pool:
            raise KernelsMissingError(f"{num_threads} threads cannot be started")

    @property
    def arithmetic(self) -> str:
        """Name of what the results' bits depend on: sets of equal bits have the same one."""
        return _EQUAL_BITS.get(self.instruction_set, self.instruction_set)

    def __del__(self) -> None:
        if getattr(self, "_pool", None):
            self._library.pw_pool_free(self._pool)
            self._pool = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function of abi.h without its prefix, bound to this pool."""
        if name.startswith("_"):
            raise AttributeError(name)
        function = functools.partial(getattr(self._library, f"pw_{name}"), self._pool)
        setattr(self, name, function)
        return function


def pointer(tensor: Tensor | None) -> int | None:
    """Return the address of a contiguous tensor; None for None."""
    if tensor is None:
        return None
    if not tensor.is_contiguous():
        raise ValueError("kernels read contiguous tensors only")
    return tensor.data_ptr()
