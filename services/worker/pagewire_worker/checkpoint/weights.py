"""Reads tensors of a checkpoint by name and shape.

Every tensor is requested once. A tensor that is missing, has another shape or is never requested
ends the start with one line, because the model would otherwise compute something else.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.folder import INDEX_NAME, SINGLE_NAME
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.requested import RequestedTensors
from pagewire_worker.checkpoint.tensor_names import PlaceFinder, StoredPlace
from pagewire_worker.host.memory_advice import release_pages

Shape = tuple[int, ...]


class WeightReader(Protocol):
    """Tensors by name and shape, from any source."""

    def take(self, name: str, shape: Shape) -> Tensor:
        """Return one tensor. Raises StartupError when it is missing or of another shape."""
        ...

    def take_stacked(self, parts: Sequence[tuple[str, Shape]]) -> Tensor:
        """Return tensors stacked along their first dimension."""
        ...

    def borrow(self, name: str, shape: Shape) -> AbstractContextManager[Tensor]:
        """Yield one tensor in its stored type, until the end of the context."""
        ...

    def borrow_matrix(
        self, name: str, shape: Shape
    ) -> AbstractContextManager[CodedMatrix | Tensor]:
        """Yield one tensor as `borrow` does, or codes and scales where the matrix has them."""
        ...

    def ignore(self, name: str) -> None:
        """Accept that `name` may be stored without being requested."""
        ...

    def finish(self) -> None:
        """Release the files. Raises StartupError if a stored tensor was not requested."""
        ...


def stacked(
    parts: Sequence[tuple[str, Shape]],
    device: torch.device,
    dtype: torch.dtype,
    fill: Callable[[Tensor, str, Shape], object],
) -> Tensor:
    """Return one tensor whose rows `fill(rows, name, shape)` writes, part by part."""
    num_rows = sum(shape[0] for _, shape in parts)
    result = torch.empty((num_rows, *parts[0][1][1:]), dtype=dtype, device=device)
    row = 0
    for name, shape in parts:
        fill(result[row : row + shape[0]], name, shape)
        row += shape[0]
    return result


class SafetensorsReader:
    """Tensors of one checkpoint, moved to a device and type when they are taken.

    Args:
        folder: Holds model.safetensors, or the index and the shards it names.
        device, dtype: Device and type of the returned tensors.
        on_progress: Called with the fraction of tensors taken.
        names: Chooses and names tensors; None for all, as they are stored.
    """

    def __init__(
        self,
        folder: Path,
        device: torch.device,
        dtype: torch.dtype,
        on_progress: Callable[[float], None] = lambda fraction: None,
        *,
        names: PlaceFinder | None = None,
    ) -> None:
        self._folder = folder
        self._device = device
        self._dtype = dtype
        self._files: dict[Path, Any] = {}
        files = self._find_tensors()
        plain = {name: StoredPlace(name) for name in files}
        self._places = plain if names is None else names.places(folder, files)
        self._file_of = {name: files[place.stored] for name, place in self._places.items()}
        self._requested = RequestedTensors(folder, self._file_of, on_progress)

    def take(self, name: str, shape: Shape) -> Tensor:
        """Return one tensor. Raises StartupError when it is missing or of another shape."""
        return self.take_stacked([(name, shape)])

    def take_stacked(self, parts: Sequence[tuple[str, Shape]]) -> Tensor:
        """Return tensors stacked along their first dimension."""
        # Views of the files, so that wrong shapes are found before memory is taken for them.
        tensors = iter([self._read(name, shape) for name, shape in parts])
        return stacked(parts, self._device, self._dtype, lambda rows, *_: rows.copy_(next(tensors)))

    @contextmanager
    def borrow(self, name: str, shape: Shape) -> Iterator[Tensor]:
        """Yield one tensor in its stored type, in the mapped file.

        At the end its pages are released, so the tensor must not be used any more. Raises
        StartupError if it is missing or has another shape.
        """
        tensor = self._read(name, shape)
        yield tensor
        release_pages(tensor)

    def borrow_matrix(self, name: str, shape: Shape) -> AbstractContextManager[Tensor]:
        """Yield one tensor as `borrow` does: matrices are stored plainly here."""
        return self.borrow(name, shape)

    @property
    def not_taken(self) -> list[str]:
        """Names of the tensors that were not requested so far."""
        return self._requested.left

    def has(self, name: str) -> bool:
        """Return whether there is such a tensor."""
        return name in self._file_of

    @contextmanager
    def stored(self, name: str) -> Iterator[Tensor]:
        """Yield one tensor of any type and shape, as `borrow` does."""
        tensor = self._get(name)
        self._requested.note(name)
        yield tensor
        release_pages(tensor)

    def has_values(self, name: str) -> bool:
        """Return whether any value of a tensor is not 0; it is not requested by that."""
        return bool(self._get(name).any())

    def ignore(self, name: str) -> None:
        """Accept that `name` may be stored without being requested."""
        self._requested.ignore(name)

    def finish(self) -> None:
        """Close the files. Raises StartupError if a stored tensor was not requested."""
        self._files.clear()
        self._requested.finish()

    def _read(self, name: str, shape: Shape) -> Tensor:
        tensor, path, stored = self._get(name), self._file_of[name], self._places[name].stored
        if tuple(tensor.shape) != shape:
            raise wrong_shape(path, stored, tensor.shape, shape)
        if not tensor.dtype.is_floating_point:
            raise StartupError(f"{path}: tensor {stored} has type {tensor.dtype}", field="model")
        self._requested.note(name)
        return tensor

    def _get(self, name: str) -> Tensor:
        self._requested.check(name)
        path, place = self._file_of[name], self._places[name]
        try:
            tensor: Tensor = self._open(path).get_tensor(place.stored)
        except (SafetensorError, OSError) as error:
            raise broken_file(path, error) from error
        return tensor if place.cut is None else place.cut(tensor)

    def _find_tensors(self) -> dict[str, Path]:
        index = self._folder / INDEX_NAME
        single = self._folder / SINGLE_NAME
        if index.is_file():
            return self._read_index(index)
        if not single.is_file():
            raise StartupError(
                f"--model: {self._folder} has neither {SINGLE_NAME} nor {INDEX_NAME}",
                field="model",
            )
        return dict.fromkeys(self._open(single).keys(), single)

    def _read_index(self, index: Path) -> dict[str, Path]:
        try:
            weight_map = json.loads(index.read_text())["weight_map"]
            file_of = {str(name): self._folder / str(file) for name, file in weight_map.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StartupError(
                f"{index} is no index of safetensors files", field="model"
            ) from error
        for path in sorted(set(file_of.values())):
            if not path.is_file():
                raise StartupError(f"{index} names {path.name}, which is missing", field="model")
            stored = set(self._open(path).keys())
            for name in (n for n, p in file_of.items() if p == path and n not in stored):
                raise StartupError(f"{path} lacks the tensor {name}", field="model")
        return file_of

    def _open(self, path: Path) -> Any:
        if path not in self._files:
            try:
                self._files[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise broken_file(path, error) from error
        return self._files[path]


def wrong_shape(path: Path, name: str, found: Shape, wanted: Shape) -> StartupError:
    """Return the error for a tensor of another shape than config.json asks for."""
    return StartupError(
        f"{path}: tensor {name} has shape {list(found)}, config.json asks for {list(wanted)}",
        field="model",
    )


def broken_file(path: Path, error: Exception) -> StartupError:
    """Return the error for a file that the package safetensors does not read."""
    return StartupError(f"{path} is truncated or no safetensors file: {error}", field="model")
