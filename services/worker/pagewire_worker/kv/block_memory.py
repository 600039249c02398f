"""Interface to the bytes of blocks as stores and other workers have them.

Ranks that compute a model together have some layers and heads of a block each
(parallel/group_blocks.py). Their blocks have the same bytes here as those of one process. All
methods are called in the model thread.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from pagewire_worker.kv.block_copy import copy_out, write_blocks
from pagewire_worker.kv.kv_cache import CacheGroup, KvCache
from pagewire_worker.kv.layer_copy import copy_layers_in, copy_layers_out


class BlockMemory(Protocol):
    """Whole blocks of a replica, wherever they lie.

    Payloads are those of block_copy and layer_copy. Blocks lie in `device`.
    """

    @property
    def device(self) -> torch.device:
        """Device of the blocks."""
        ...

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool."""
        ...

    @property
    def bytes_per_block(self) -> int:
        """Bytes of a whole block."""
        ...

    @property
    def num_layers(self) -> int:
        """Stored layers of a whole block."""
        ...

    @property
    def is_read_in_steps(self) -> bool:
        """Whether layers may be read while a step computes those behind them."""
        ...

    def num_whole(self, num_computed: int) -> int:
        """See KvCache. Of no meaning where layers are not read within steps."""
        ...

    def layout(self) -> list[CacheGroup]:
        """Return the cache groups, in block table order."""
        ...

    def read(self, blocks: Sequence[int], staging: Tensor) -> Tensor:
        """Copy n `blocks` into the first rows of `staging`, uint8 [m, bytes]; return these rows."""
        ...

    def write(self, blocks: Sequence[int], payloads: Tensor) -> None:
        """Write `payloads`, uint8 [n, bytes], into n `blocks`."""
        ...

    def read_layers(
        self, index: Tensor, first_layer: int, num_layers: int, payload: Tensor
    ) -> None:
        """Copy layers of the blocks `index` [n] into `payload`, uint8 [num_layers * n * bytes]."""
        ...

    def write_layers(
        self, index: Tensor, first_layer: int, num_layers: int, payload: Tensor
    ) -> None:
        """Write `payload` into layers of the blocks `index` [n]."""
        ...


class CacheBlocks:
    """The BlockMemory of a cache that has whole blocks."""

    is_read_in_steps = True

    def __init__(self, cache: KvCache) -> None:
        self._cache = cache

    @property
    def device(self) -> torch.device:
        return self._cache.device

    @property
    def num_blocks(self) -> int:
        return self._cache.num_blocks

    @property
    def bytes_per_block(self) -> int:
        return self._cache.bytes_per_block

    @property
    def num_layers(self) -> int:
        return len(self._cache.stored)

    def num_whole(self, num_computed: int) -> int:
        return self._cache.num_whole(num_computed)

    def layout(self) -> list[CacheGroup]:
        return self._cache.layout()

    def read(self, blocks: Sequence[int], staging: Tensor) -> Tensor:
        return copy_out(self._cache, blocks, staging)

    def write(self, blocks: Sequence[int], payloads: Tensor) -> None:
        write_blocks(self._cache, blocks, payloads)

    def read_layers(
        self, index: Tensor, first_layer: int, num_layers: int, payload: Tensor
    ) -> None:
        copy_layers_out(self._cache, index, first_layer, num_layers, payload)

    def write_layers(
        self, index: Tensor, first_layer: int, num_layers: int, payload: Tensor
    ) -> None:
        copy_layers_in(self._cache, index, first_layer, num_layers, payload)
