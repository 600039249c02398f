"""Reads a quantized checkpoint as if its matrices were stored plainly."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.stored.cache_scales import (
    CACHE_SCALES,
    StoredScales,
    read_cache_scales,
)
from pagewire_worker.checkpoint.stored.parts import ReadableTensors, StoredFormat
from pagewire_worker.checkpoint.weights import Shape, stacked

_WEIGHT = ".weight"


class StoredReader:
    """A WeightReader whose matrices are computed from what a format stores, one at a time.

    A matrix without the tensors of the format is stored plainly: a checkpoint leaves some layers as
    they were.
    """

    def __init__(
        self,
        tensors: ReadableTensors,
        format_: StoredFormat,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Create the stored reader.

        Args:
            tensors: The files.
            format_: Format of the matrices.
            device, dtype: Device and type of the returned tensors.
        """
        self._tensors = tensors
        self._format = format_
        self._device = device
        self._dtype = dtype

    def take(self, name: str, shape: Shape) -> Tensor:
        """Return one tensor. Raises StartupError when it is missing or of another shape."""
        return self.take_stacked([(name, shape)])

    def take_stacked(self, parts: Sequence[tuple[str, Shape]]) -> Tensor:
        """Return tensors stacked along their first dimension."""
        return stacked(parts, self._device, self._dtype, self._fill)

    def _fill(self, rows: Tensor, name: str, shape: Shape) -> None:
        with self.borrow(name, shape) as tensor:
            rows.copy_(tensor)

    @contextmanager
    def borrow(self, name: str, shape: Shape) -> Iterator[Tensor]:
        """Yield one tensor: a matrix of the format in float32, others in their stored type."""
        with self.borrow_matrix(name, shape) as found:
            yield found.dense() if isinstance(found, CodedMatrix) else found

    @contextmanager
    def borrow_matrix(self, name: str, shape: Shape) -> Iterator[CodedMatrix | Tensor]:
        """Yield one tensor as `borrow` does, but codes and scales of a matrix that has them."""
        prefix = name.removesuffix(_WEIGHT)
        if len(shape) == 2 and name != prefix and self._format.has(self._tensors, prefix):
            yield self._format.matrix(self._tensors, prefix, (shape[0], shape[1]))
            return
        with self._tensors.borrow(name, shape) as tensor:
            yield tensor

    def cache_scales(self, attention: str) -> StoredScales | None:
        """Return the scales of a layer for a cache of 8-bit floats; see read_cache_scales."""
        return read_cache_scales(self._tensors, attention)

    def ignore(self, name: str) -> None:
        """Accept that `name` may be stored without being requested."""
        self._tensors.ignore(name)

    def finish(self) -> None:
        """Close the files. Raises StartupError if a stored tensor was not requested.

        Scales of a KV cache that is not kept by them are left out, and biases of zeros: some
        libraries write one for each matrix.
        """
        for name in self._tensors.not_taken:
            is_bias = name.endswith(".bias")
            if name.endswith(CACHE_SCALES) or (is_bias and not self._tensors.has_values(name)):
                self._tensors.ignore(name)
        self._tensors.finish()
