"""A device that computes nothing, so that what a step costs its host can be measured without one.

Tensors lie in the host's memory and are narrow. Kernels of Triton are launched up to the call of
the driver, which is left out; so are matrix products and graphs. What torch does with small arrays
is done. Copies to the device are copies within the host.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton.backends.compiler import GPUTarget
from triton.runtime import jit
from triton.runtime.jit import JITFunction

from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.cuda.capture import CapturedWork, Work
from pagewire_worker.runner.readback import HostCopy
from pagewire_worker.triton_kernels.interpreter import INTERPRETED

TARGET = GPUTarget("cuda", 90, 32)

OPERATORS = {
    "add_",
    "_to_copy",
    "copy_",
    "embedding",
    "fill_",
    "index",
    "index_put_",
    "index_copy_",
    "index_select",
}
"""Operators of torch that a step may start on a device."""


@dataclass(slots=True)
class Counts:
    """What a device was asked for.

    Attributes:
        launches: Of Triton's kernels.
        products: Of matrices.
        operators: Others of torch.
        copies: From the host to it and back.
        graphs: Replays.
    """

    launches: int = 0
    products: int = 0
    operators: int = 0
    copies: int = 0
    graphs: int = 0

    def so_far(self) -> dict[str, int]:
        """Return what was counted by now."""
        return {name: getattr(self, name) for name in self.__slots__}


class _Driver:
    """As much of Triton's driver as a launch asks for."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return TARGET


@dataclass(slots=True)
class _Kernel:
    """Stands for a compiled kernel."""

    counts: Counts
    function: int = 0
    packed_metadata: tuple[int, ...] = ()

    def launch_metadata(self, *arguments: object) -> None:
        return None

    def run(self, *arguments: object) -> None:
        self.counts.launches += 1


@dataclass(frozen=True, slots=True)
class NoLinear:
    """A linear layer that returns whatever lies in the memory of its result."""

    counts: Counts
    num_outputs: int

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        self.counts.products += 1
        return torch.empty((len(x), self.num_outputs), dtype=x.dtype, device=x.device)


class CountedOperators(TorchDispatchMode):
    """Counts OPERATORS. It slows them down, so that what it counts is not timed."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counts = counts

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = str(func).removeprefix("aten.")
        self._counts.operators += name.split(".")[0] in OPERATORS or name == "to.dtype"
        return func(*args, **(kwargs or {}))


class _Done:
    """An event that has come."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class NoReadback:
    """Copies what was sampled within the host."""

    counts: Counts

    def start(self, sampled: SampledTokens) -> HostCopy:
        """Return zeros of the sizes of `sampled`: its tokens mean nothing."""
        assert sampled.faults is not None
        assert sampled.kv_faults is not None
        self.counts.copies += 3
        token_ids, faults, kv_faults = (
            torch.zeros(there.shape, dtype=there.dtype)
            for there in (sampled.token_ids, sampled.faults, sampled.kv_faults)
        )
        return HostCopy(SampledTokens(token_ids, None, faults, kv_faults), _Done())

    def is_lost(self) -> bool:
        """Return that it is there."""
        return False


@dataclass(frozen=True, slots=True)
class NoGraphs:
    """Captures work by doing it once; a replay does nothing.

    Attributes:
        captured: Kernels of Triton in each graph, in the order of the captures.
    """

    counts: Counts
    captured: list[int] = field(default_factory=list)

    def __call__(self, work: Work) -> CapturedWork:
        """Do `work`, and note how many kernels it launched."""
        before = self.counts.launches
        work()
        self.captured.append(self.counts.launches - before)
        return CapturedWork(self._replay, work)

    def _replay(self) -> None:
        self.counts.graphs += 1


@contextmanager
def no_device() -> Iterator[Counts]:
    """Let kernels of Triton do nothing, and copies to a device go to other memory of the host; give
    the counts. Exits where kernels are interpreted: nothing of them is launched then."""
    if INTERPRETED:
        raise SystemExit("TRITON_INTERPRET=1 is set: launches of kernels cannot be measured")
    counts = Counts()
    share = torch.from_numpy
    made: list[tuple[dict[str, Any], str]] = []

    def compiled(function: Any, key: str, signature: Any, device: int, *rest: Any) -> _Kernel:
        cache = function.device_caches[device][0]
        kernel = cache[key] = _Kernel(counts)
        made.append((cache, key))
        return kernel

    def copied(array: npt.NDArray[np.generic]) -> Tensor:
        counts.copies += 1
        return share(array).clone()

    try:
        with (
            mock.patch.object(jit, "driver", SimpleNamespace(active=_Driver())),
            mock.patch.object(JITFunction, "_do_compile", compiled),
            mock.patch.object(torch, "from_numpy", copied),
        ):
            yield counts
    finally:
        for cache, key in made:
            del cache[key]
