"""Blocks of a group of ranks: put together out of their parts, and taken apart.

Rank 0 asks for both in the model thread, between steps. The others follow in the order of its
messages, so a step that comes later finds what was written. A group ends as a whole, so a block
that lacks the part of a rank goes nowhere.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.kv.block_memory import CacheBlocks
from pagewire_worker.kv.kv_cache import CacheGroup, CacheShape, KvCache
from pagewire_worker.kv.layer_copy import block_index, copy_layers_in, copy_layers_out
from pagewire_worker.parallel.block_parts import WholeBlocks, block_parts
from pagewire_worker.parallel.messages import Array, RankCommand, encode
from pagewire_worker.parallel.rank_group import RankGroup
from pagewire_worker.parallel.shared_collectives import SharedCollectives


class RankBlocks:
    """One rank's part of all blocks; the ranks call the same methods together.

    Args:
        cache: Of this rank.
        shape: Of the cache of the whole model.
        has_heads_apart: See WholeBlocks.

    Attributes:
        whole: The form of whole blocks.
    """

    def __init__(
        self,
        cache: KvCache,
        shape: CacheShape,
        collectives: SharedCollectives,
        *,
        has_heads_apart: bool,
    ) -> None:
        place = collectives.topology
        key = cache.stored[0].key
        self.whole = WholeBlocks(
            num_layers=shape.num_stored_layers,
            num_parts=shape.num_parts,
            block_size=cache.block_size,
            num_heads=shape.num_kv_heads,
            row_bytes=key.shape[-1] * key.element_size(),
            has_heads_apart=has_heads_apart,
            parts=block_parts(shape, place.tp_size, place.num_stages),
        )
        self._cache = cache
        self._collectives = collectives
        self._rank = place.rank

    def gather(self, index: Tensor, first_layer: int, num_layers: int) -> tuple[Tensor, ...]:
        """Return the parts of some layers of n blocks, by rank, each uint8 [bytes] and longer.

        Raises:
            RankLostError: A rank is lost.
        """
        whole, part = self.whole, self.whole.parts[self._rank]
        sizes = [
            len(whole.layers_of(rank, first_layer, num_layers)) * len(other.heads)
            for rank, other in enumerate(whole.parts)
        ]
        per_head = len(index) * whole.bytes_per_layer // whole.num_heads
        own = torch.empty(max(sizes) * per_head, dtype=torch.uint8)
        layers = whole.layers_of(self._rank, first_layer, num_layers)
        if layers:
            place = layers.start - part.layers.start
            payload = own[: sizes[self._rank] * per_head]
            copy_layers_out(self._cache, index, place, len(layers), payload)
        return self._collectives.gather_all(own)

    def scatter(self, index: Tensor, first_layer: int, joined: Tensor) -> None:
        """Write this rank's part of n blocks; `joined` as WholeBlocks.by_layer returns it."""
        own = self.whole.part_of(self._rank, first_layer, joined)
        if len(own):
            layers = self.whole.layers_of(self._rank, first_layer, len(joined))
            place = layers.start - self.whole.parts[self._rank].layers.start
            payload = own.contiguous().view(-1)
            copy_layers_in(self._cache, index, place, len(layers), payload)

    def follow(self, command: RankCommand, arrays: Sequence[Array]) -> None:
        """Do what a message of GroupBlocks says. Raises RankLostError."""
        index, facts, *payloads = arrays
        first_layer, num_layers, is_by_block = facts.tolist()
        if command is RankCommand.READ_BLOCKS:
            self.gather(torch.from_numpy(index), first_layer, num_layers)
            return
        payload = torch.from_numpy(payloads[0])
        joined = (
            self.whole.by_block(payload.view(len(index), -1))
            if is_by_block
            else self.whole.by_layer(payload, num_layers)
        )
        self.scatter(torch.from_numpy(index), first_layer, joined)


class GroupBlocks:
    """The BlockMemory of a group, in rank 0. All methods that copy raise RankLostError.

    Args:
        cache: Of rank 0.
        rank: Its part of the blocks.
    """

    is_read_in_steps = False
    """The other ranks hear of nothing before they have computed the step."""

    def __init__(self, cache: KvCache, rank: RankBlocks, group: RankGroup) -> None:
        self._cache = cache
        self._rank = rank
        self._whole = rank.whole
        self._group = group
        # Of latents, and of one head that all share, rank 0 has whole blocks itself.
        self._own = CacheBlocks(cache) if rank.whole.is_in_first_rank else None

    @property
    def device(self) -> torch.device:
        return self._cache.device

    @property
    def num_blocks(self) -> int:
        return self._cache.num_blocks

    @property
    def bytes_per_block(self) -> int:
        return self._whole.bytes_per_layer * self._whole.num_layers

    @property
    def num_layers(self) -> int:
        return self._whole.num_layers

    def num_whole(self, num_computed: int) -> int:
        return self._cache.num_whole(num_computed)

    def layout(self) -> list[CacheGroup]:
        return [
            replace(one, num_layers=self.num_layers, bytes_per_block=self.bytes_per_block)
            for one in self._cache.layout()
        ]

    def read(self, blocks: Sequence[int], staging: Tensor) -> Tensor:
        if self._own is not None:
            return self._own.read(blocks, staging)
        payloads = staging[: len(blocks)]
        self._join(block_index(self, blocks), 0, self._whole.by_block(payloads))
        return payloads

    def write(self, blocks: Sequence[int], payloads: Tensor) -> None:
        index = block_index(self, blocks)
        self._part(index, 0, self._whole.by_block(payloads), payloads, is_by_block=True)

    def read_layers(
        self, index: Tensor, first_layer: int, num_layers: int, payload: Tensor
    ) -> None:
        if self._own is not None:
            self._own.read_layers(index, first_layer, num_layers, payload)
            return
        self._join(index, first_layer, self._whole.by_layer(payload, num_layers))

    def write_layers(
        self, index: Tensor, first_layer: int, num_layers: int, payload: Tensor
    ) -> None:
        joined = self._whole.by_layer(payload, num_layers)
        self._part(index, first_layer, joined, payload, is_by_block=False)

    def _join(self, index: Tensor, first_layer: int, joined: Tensor) -> None:
        """Fill `joined` with the parts of all ranks."""
        num_layers = len(joined)
        self._group.send(_message(RankCommand.READ_BLOCKS, index, (first_layer, num_layers, 0)))
        with self._group.together("a copy of blocks"):
            for rank, found in enumerate(self._rank.gather(index, first_layer, num_layers)):
                place = self._whole.part_of(rank, first_layer, joined)
                if self._whole.parts[rank].is_read and len(place):
                    place.copy_(found[: place.numel()].view(place.shape))
            self._group.collectives.check()

    def _part(
        self, index: Tensor, first_layer: int, joined: Tensor, payload: Tensor, *, is_by_block: bool
    ) -> None:
        """Let each rank write its part of `joined`, whose bytes are those of `payload`."""
        facts = (first_layer, len(joined), int(is_by_block))
        flat = payload.reshape(-1).numpy()
        self._group.send(_message(RankCommand.WRITE_BLOCKS, index, facts, flat))
        with self._group.together("a copy of blocks"):
            self._rank.scatter(index, first_layer, joined)
            self._group.collectives.check()


def _message(
    command: RankCommand, index: Tensor, facts: tuple[int, int, int], *payload: Array
) -> bytes:
    return encode(command, [index.numpy(), np.array(facts, dtype=np.int64), *payload])
