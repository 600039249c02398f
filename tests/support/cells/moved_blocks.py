"""The named blocks of a replica, copied out and loaded again as an offload and a hand-off do."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.kv.block_copy import make_staging
from pagewire_worker.kv.layer_copy import block_index, bytes_per_layer, copy_layers_out
from pagewire_worker.loading.loader import Replica


@dataclass(frozen=True, slots=True)
class BlocksTaken:
    """Named blocks without their worker.

    Attributes:
        blocks: Where they are loaded: where other blocks lay before.
        payload: uint8, [blocks, bytes], or flat with one layer of all blocks after the other.
    """

    names: list[bytes]
    blocks: list[int]
    payload: Tensor
    is_layered: bool


def take_blocks(replica: Replica, *, is_layered: bool) -> BlocksTaken:
    """Copy the named blocks out, whole as to a store, or by layers as to another worker."""
    runner = replica.model_runner
    cache, held = runner.backend.kv_cache, runner.blocks.held_names()
    names, blocks = list(held.values()), list(held)
    if is_layered and names:
        payload = torch.empty(len(names) * cache.bytes_per_block, dtype=torch.uint8)
        copy_layers_out(cache, block_index(cache, blocks), 0, len(cache.stored), payload)
    else:
        payload = make_staging(cache, len(names) * cache.bytes_per_block)
        assert runner.blocks.copy_out(names, payload) == list(range(len(names)))
    return BlocksTaken(names, blocks[1:] + blocks[:1], payload, is_layered)


def load_blocks(replica: Replica, taken: BlocksTaken) -> None:
    """Load blocks into a replica of the same model."""
    blocks, cache = replica.model_runner.blocks, replica.model_runner.backend.kv_cache
    if not taken.names:
        return
    if not taken.is_layered:
        staging = make_staging(cache, taken.payload.nbytes)
        payloads = [bytes(row.numpy()) for row in taken.payload]
        blocks.load_blocks(taken.blocks, taken.names, payloads, staging)
        return
    blocks.begin_load(taken.blocks)
    size = bytes_per_layer(cache) * len(taken.names)
    for layer in range(len(cache.stored)):
        part = taken.payload[layer * size : (layer + 1) * size]
        blocks.load_layers(taken.blocks, layer, 1, part)
    blocks.name_loaded(taken.blocks, taken.names)
