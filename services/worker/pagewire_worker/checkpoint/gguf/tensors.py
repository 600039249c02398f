"""Reads the tensors of a GGUF file, and says which of them are in blocks.

A folder of such a model holds config.json, the tokenizer, the file or a link to it, and the index.
"""

import math
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.folder import GGUF_INDEX_NAME, GGUF_NAME
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.gguf.blocks import PLAIN, read_blocks
from pagewire_worker.checkpoint.gguf.index import TensorPlace, read_index
from pagewire_worker.checkpoint.requested import RequestedTensors
from pagewire_worker.checkpoint.stored.parts import StoredTensors
from pagewire_worker.checkpoint.weights import Shape, wrong_shape
from pagewire_worker.host.memory_advice import release_pages


class GgufTensors:
    """The tensors of the file in `folder`, mapped.

    Args:
        on_progress: Called with the fraction of tensors taken.
    """

    def __init__(self, folder: Path, on_progress: Callable[[float], None]) -> None:
        self._path = folder / GGUF_NAME
        try:
            with self._path.open("rb") as file:
                # Private and writable, because torch has no tensors that cannot be written.
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise StartupError(f"{self._path} cannot be read: {error}", field="model") from error
        self.places = read_index(folder / GGUF_INDEX_NAME, self._path)
        self._requested = RequestedTensors(folder, self.places, on_progress)

    @property
    def not_taken(self) -> list[str]:
        """Names of the tensors that were not requested so far."""
        return self._requested.left

    def has(self, name: str) -> bool:
        """Return whether there is such a tensor."""
        return name in self.places

    @contextmanager
    def stored(self, name: str) -> Iterator[Tensor]:
        """Yield the bytes of a tensor, uint8 [rows, bytes of a row], until the end of the context.

        Rows of heads are in the order of transformers. Raises StartupError if it is missing.
        """
        place = self._place(name)
        data = self._data(place)
        rows = data.view(place.shape[0] if len(place.shape) == 2 else 1, -1)
        yield rows[_order_of(place)] if place.num_heads else rows
        release_pages(data)

    @contextmanager
    def borrow(self, name: str, shape: Shape) -> Iterator[Tensor]:
        """Yield a tensor without blocks in its stored type, until the end of the context."""
        place = self._place(name)
        if place.shape != shape:
            raise wrong_shape(self._path, name, place.shape, shape)
        if place.kind not in PLAIN:
            raise StartupError(f"{self._path}: tensor {name} has type {place.kind}", field="model")
        dtype = PLAIN[place.kind]
        if place.num_bytes != math.prod(shape) * dtype.itemsize:
            raise StartupError(
                f"{self._path}: tensor {name} has {place.num_bytes} bytes, its type and shape ask"
                f" for {math.prod(shape) * dtype.itemsize}",
                field="model",
            )
        with self.stored(name) as data:
            yield data.view(dtype).view(shape)

    def has_values(self, name: str) -> bool:
        """Return whether any value of a tensor is not 0."""
        return bool(self._data(self.places[name]).any())

    def ignore(self, name: str) -> None:
        """Accept that `name` may be stored without being requested."""
        self._requested.ignore(name)

    def finish(self) -> None:
        """Raise StartupError if a stored tensor was not requested."""
        self._requested.finish()

    def _place(self, name: str) -> TensorPlace:
        self._requested.check(name)
        self._requested.note(name)
        return self.places[name]

    def _data(self, place: TensorPlace) -> Tensor:
        return torch.frombuffer(
            self._bytes, dtype=torch.uint8, count=place.num_bytes, offset=place.offset
        )


class GgufFormat:
    """Matrices in the blocks of a GGUF file."""

    name = "gguf"

    def __init__(self, tensors: GgufTensors) -> None:
        self._places = tensors.places

    def has(self, tensors: StoredTensors, prefix: str) -> bool:
        """Return whether the matrix is stored in blocks."""
        place = self._places.get(f"{prefix}.weight")
        return place is not None and place.kind not in PLAIN

    def matrix(
        self, tensors: StoredTensors, prefix: str, shape: tuple[int, int]
    ) -> CodedMatrix | Tensor:
        """Return the matrix [outputs, inputs]."""
        name = f"{prefix}.weight"
        place = self._places[name]
        if place.shape != shape:
            raise wrong_shape(Path(GGUF_NAME), name, place.shape, shape)
        with tensors.stored(name) as data:
            return read_blocks(place.kind, data, shape, name)


def _order_of(place: TensorPlace) -> Tensor:
    """Return which stored row each row of transformers is: halves of heads lie interleaved."""
    rows = torch.arange(place.shape[0]).view(place.num_heads, -1, 2)
    return rows.transpose(1, 2).flatten()
