"""Reads the part of each tensor that belongs to a rank, and no other bytes of its files.

Rows that are cut come from their pages of the mapped file. Columns share pages with those of other
ranks; they are read once, and only the part is kept.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.weights import Shape, WeightReader, stacked
from pagewire_worker.parallel.plan_shards import Cut, PlanShard


class ShardReader:
    """A WeightReader of one rank's part.

    Args:
        weights: The whole tensors.
        device, dtype: Device and type of tensors that are taken.
    """

    def __init__(
        self, weights: WeightReader, shard: PlanShard, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._weights = weights
        self._cuts = shard.cuts
        self._device = device
        self._dtype = dtype
        for name in shard.unread:
            weights.ignore(name)

    def take(self, name: str, shape: Shape) -> Tensor:
        """Return the part of one tensor. Raises StartupError."""
        return self.take_stacked([(name, shape)])

    def take_stacked(self, parts: Sequence[tuple[str, Shape]]) -> Tensor:
        """Return the parts of tensors, stacked along their first dimension."""
        if not any(name in self._cuts for name, _ in parts):
            return self._weights.take_stacked(parts)
        return stacked(parts, self._device, self._dtype, self._fill)

    def _fill(self, rows: Tensor, name: str, shape: Shape) -> None:
        with self.borrow(name, shape) as tensor:
            rows.copy_(tensor)

    @contextmanager
    def borrow(self, name: str, shape: Shape) -> Iterator[Tensor]:
        """Yield the part of one tensor in its stored type, until the end of the context."""
        cut = self._cuts.get(name)
        with self._weights.borrow(name, shape if cut is None else cut.shape) as tensor:
            yield tensor if cut is None else cut.columns_of(cut.rows_of(tensor))

    @contextmanager
    def borrow_matrix(self, name: str, shape: Shape) -> Iterator[CodedMatrix | Tensor]:
        """Yield the same, or codes and scales where the matrix has them."""
        cut = self._cuts.get(name)
        with self._weights.borrow_matrix(name, shape if cut is None else cut.shape) as found:
            if cut is None:
                yield found
            elif isinstance(found, CodedMatrix):
                yield _coded_part(name, cut, found)
            else:
                yield cut.columns_of(cut.rows_of(found))

    def ignore(self, name: str) -> None:
        """Accept that `name` may be stored without being requested."""
        self._weights.ignore(name)

    def finish(self) -> None:
        """Release the files. Raises StartupError if a stored tensor was not requested."""
        self._weights.finish()


def _coded_part(name: str, cut: Cut, matrix: CodedMatrix) -> CodedMatrix:
    """Return the part of a matrix of codes. Raises StartupError if it would cut a group."""
    matrix = matrix.select(cut.rows_of)
    if cut.columns is None:
        return matrix
    reason = matrix.why_no_inputs(*cut.columns)
    if reason is not None:
        raise StartupError(
            f"--tensor-parallel-size: tensor {name} cannot be divided: {reason}",
            field="tensor_parallel_size",
        )
    return matrix.inputs(*cut.columns)
