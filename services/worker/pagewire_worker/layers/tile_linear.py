"""Linear layers whose rows have the same bits in any batch, for exact mode on CUDA."""

from torch import Tensor

from pagewire_worker.triton_kernels.tile_matmul import Tile, tile_matmul


class TileLinear:
    """The product of triton_kernels/tile_matmul.py, with one tile for its whole life."""

    __slots__ = ("_bias", "_tile", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias
        self._tile = Tile.of(weight.dtype, len(weight))

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        return tile_matmul(x, self._weight, self._bias, self._tile)
