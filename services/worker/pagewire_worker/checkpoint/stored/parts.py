"""Reads the tensors that make up one stored matrix, and checks their shapes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix

Shape = tuple[int, ...]


class StoredTensors(Protocol):
    """Tensors as they lie in the files, of any type."""

    def has(self, name: str) -> bool:
        """Return whether there is such a tensor."""
        ...

    def stored(self, name: str) -> AbstractContextManager[Tensor]:
        """Yield a tensor until the end of the context. Raises StartupError if it is missing."""
        ...

    def ignore(self, name: str) -> None:
        """Accept that `name` may be stored without being requested."""
        ...


class ReadableTensors(StoredTensors, Protocol):
    """All tensors of a checkpoint: those of its format, and plain ones."""

    @property
    def not_taken(self) -> list[str]:
        """Names of the tensors that were not requested so far."""
        ...

    def borrow(self, name: str, shape: Shape) -> AbstractContextManager[Tensor]:
        """Yield a plain tensor in its stored type. Raises StartupError."""
        ...

    def has_values(self, name: str) -> bool:
        """Return whether any value of a tensor is not 0."""
        ...

    def finish(self) -> None:
        """Release the files. Raises StartupError if a stored tensor was not requested."""
        ...


class StoredFormat(Protocol):
    """A format of matrices. It owns the names and the meaning of their tensors."""

    name: str
    """As config.json calls it, for messages."""

    def has(self, tensors: StoredTensors, prefix: str) -> bool:
        """Return whether the matrix `prefix` is stored in this format."""
        ...

    def matrix(
        self, tensors: StoredTensors, prefix: str, shape: tuple[int, int]
    ) -> CodedMatrix | Tensor:
        """Return the matrix [outputs, inputs] that is stored: codes, or values in float32.

        Raises:
            StartupError: A tensor is missing or has another shape; names the tensor.
        """
        ...


@contextmanager
def part(tensors: StoredTensors, name: str, *shapes: Shape) -> Iterator[Tensor]:
    """Yield a tensor that has one of `shapes`; without shapes any. Raises StartupError."""
    with tensors.stored(name) as tensor:
        if shapes and tuple(tensor.shape) not in shapes:
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            raise StartupError(
                f"the tensor {name} has shape {list(tensor.shape)}, its format and config.json"
                f" ask for {wanted}",
                field="model",
            )
        yield tensor


def evenly(prefix: str, size: int, number: int, what: str) -> int:
    """Return size / number. Raises StartupError where a rest is left.

    Args:
        prefix: The matrix.
        size: Its inputs or outputs.
        number: Groups, or integers of a word.
        what: Both, for the message: "inputs in groups".
    """
    if not number or size % number:
        raise StartupError(
            f"{prefix}: {size} {what} leave a rest when they are divided by {number}",
            field="model",
        )
    return size // number
