"""A stand-in for CUDA graphs that starts again what was recorded, operator by operator and launch
by launch, at the addresses of then. As a graph it runs no Python of the captured work, keeps its
own intermediate tensors, and keeps nothing else alive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from pagewire_worker.cuda.capture import CapturedWork, Work
from support.poison.launches import listening

_WAITS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}


class FreedMemoryError(AssertionError):
    """A replay reads or writes memory that was somebody's when it was recorded."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A tensor by its address.

    Attributes:
        storage: Of a tensor from outside of the recording; weak.
        own: A tensor of the recording itself, which it keeps; else None.
    """

    storage: StorageWeakRef
    own: Tensor | None
    dtype: torch.dtype
    view: tuple[int, torch.Size, tuple[int, ...]]

    def tensor(self, who: str) -> Tensor:
        if self.own is not None:
            return self.own
        if self.storage.expired():
            words = f"{self.dtype} {tuple(self.view[1])}"
            raise FreedMemoryError(f"{who} uses a tensor that was freed: {words}")
        storage = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
        return torch.empty(0, dtype=self.dtype).set_(storage, *self.view)


class _Tape(TorchDispatchMode):
    """What was done between its beginning and its end."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Callable[[], None]] = []
        self._own: dict[int, Tensor] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func not in _WAITS, f"{func} waits for the device: it cannot be captured"
        kwargs = kwargs or {}
        places = self._placed((args, kwargs))
        given = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, kwargs))}
        result = func(*args, **kwargs)
        made = [
            tensor
            for tensor in _tensors(result)
            if tensor.untyped_storage().data_ptr() not in given
        ]
        for tensor in made:
            self._own[tensor.untyped_storage().data_ptr()] = tensor
        self.steps.append(lambda: _again(func, places, made))
        return result

    def note_launch(self, executor, args, kwargs) -> None:
        """Record a launch of Triton's."""
        places = self._placed((args, kwargs))
        name = executor.fn.__name__

        def launch() -> None:
            again, keywords = _there(places, name)
            executor(*again, **keywords)

        self.steps.append(launch)

    def replay(self) -> None:
        for step in self.steps:
            step()

    def _placed(self, tree: Any) -> Any:
        return tree_map(lambda x: self._place(x) if isinstance(x, Tensor) else x, tree)

    def _place(self, tensor: Tensor) -> _Place:
        storage = tensor.untyped_storage()
        view = tensor.storage_offset(), tensor.shape, tensor.stride()
        own = tensor if storage.data_ptr() in self._own else None
        return _Place(StorageWeakRef(storage), own, tensor.dtype, view)


def _tensors(tree: Any) -> Sequence[Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, Tensor)]


def _there(places: Any, who: str) -> Any:
    return tree_map(lambda x: x.tensor(who) if isinstance(x, _Place) else x, places)


def _again(func: Any, places: Any, made: Sequence[Tensor]) -> None:
    """Do an operator again; what it makes goes where it went the first time."""
    args, kwargs = _there(places, str(func))
    results = _tensors(func(*args, **kwargs))
    if made:
        for target, result in zip(made, results, strict=True):
            target.copy_(result)


class RecordedCapture:
    """Captures as CudaCapture does.

    Args:
        scratch: Memory that may hold anything when a replay begins: NaN is written there.
    """

    def __init__(self, scratch: Sequence[Tensor] = ()) -> None:
        self._scratch = tuple(scratch)

    def __call__(self, work: Work) -> CapturedWork:
        """Do `work` twice, and record the second time."""
        work()
        tape, scratch = _Tape(), self._scratch
        with tape, listening(tape.note_launch):
            work()

        def replay() -> None:
            for memory in scratch:
                memory.fill_(float("nan"))
            tape.replay()

        return CapturedWork(replay, work)
