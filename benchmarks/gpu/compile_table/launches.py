"""Compiles what functions launch, for a device that is not there.

Has to be imported where kernels are not interpreted.
"""

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.runtime import driver
from triton.runtime.jit import JITFunction

_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel as it was compiled for a launch.

    Attributes:
        kernel: Name of its function.
        compiled: With its options (`metadata`) and code (`asm`).
        registers: Of a thread.
        spill_stores, spill_loads: Bytes of a thread that did not fit in registers.
    """

    kernel: str
    compiled: CompiledKernel
    registers: int
    spill_stores: int
    spill_loads: int


_known: dict[str, Launch] = {}
"""By the hash of what was compiled: Triton compiles it once in a process, whoever launches it."""


class _AbsentDevice:
    """Says what Triton asks a driver before it compiles; `capability` is 80 for 8.0."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def get_current_device(self) -> int:
        # Triton keeps what it compiled by the number of the device.
        return self._capability

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._capability, 32)


class Compiler:
    """Compiles for one compute capability.

    Args:
        capability: 80 for 8.0.
        kernels: Names of those that are compiled; None for all.
    """

    def __init__(self, capability: int, kernels: Collection[str] | None = None) -> None:
        assert os.environ.get("TRITON_INTERPRET") != "1", "kernels would be interpreted"
        self._device = _AbsentDevice(capability)
        self._kernels = kernels

    def launches_of(self, function: Callable[[], object]) -> list[Launch]:
        """Return what `function` launches, compiled and not run. Its tensors lie on the CPU."""
        found: list[Launch] = []
        original = JITFunction.run

        def run(kernel: Any, *arguments: Any, **options: Any) -> None:
            name = kernel.fn.__name__.removeprefix("_")
            if self._kernels is not None and name not in self._kernels:
                return
            log = io.StringIO()
            with contextlib.redirect_stdout(log):
                compiled = original(kernel, *arguments, **{**options, "warmup": True})
            if compiled.hash not in _known:
                _known[compiled.hash] = _launch(name, compiled, log.getvalue())
            found.append(_known[compiled.hash])

        with _uncached(), _active(self._device):
            JITFunction.run = run
            try:
                function()
            finally:
                JITFunction.run = original
        return found


def _launch(kernel: str, compiled: CompiledKernel, log: str) -> Launch:
    registers, spills = _REGISTERS.search(log), _SPILLS.search(log)
    assert registers, f"ptxas says nothing of {kernel}: {log}"
    assert spills, f"ptxas says nothing of spills of {kernel}: {log}"
    return Launch(kernel, compiled, int(registers[1]), int(spills[1]), int(spills[2]))


@contextlib.contextmanager
def _active(device: _AbsentDevice) -> Iterator[None]:
    before = driver._active
    driver.set_active(device)
    try:
        yield
    finally:
        driver._active = before


@contextlib.contextmanager
def _uncached() -> Iterator[None]:
    """Let ptxas speak of each kernel: it says nothing of those that lie in Triton's cache."""
    with tempfile.TemporaryDirectory() as folder, knobs.nvidia.scope(), knobs.cache.scope():
        knobs.nvidia.dump_ptxas_log = True
        knobs.cache.dir = folder
        yield
