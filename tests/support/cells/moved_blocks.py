"""The named blocks of a replica, copied out and loaded again as an offload and a hand-off do."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.kv.block_copy import make_staging
from pagewire_worker.kv.layer_copy import block_index
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
    blocks = replica.model_runner.blocks
    memory, held = blocks.memory, blocks.held_names()
    names, places = list(held.values()), list(held)
    if is_layered and names:
        payload = torch.empty(len(names) * memory.bytes_per_block, dtype=torch.uint8)
        memory.read_layers(block_index(memory, places), 0, memory.num_layers, payload)
    else:
        payload = make_staging(memory, len(names) * memory.bytes_per_block)
        assert blocks.copy_out(names, payload) == list(range(len(names)))
    return BlocksTaken(names, places[1:] + places[:1], payload, is_layered)


def load_blocks(replica: Replica, taken: BlocksTaken) -> None:
    """Load blocks into a replica of the same model."""
    blocks = replica.model_runner.blocks
    memory = blocks.memory
    if not taken.names:
        return
    if not taken.is_layered:
        staging = make_staging(memory, taken.payload.nbytes)
        payloads = [bytes(row.numpy()) for row in taken.payload]
        blocks.load_blocks(taken.blocks, taken.names, payloads, staging)
        return
    blocks.begin_load(taken.blocks)
    size = memory.bytes_per_block // memory.num_layers * len(taken.names)
    for layer in range(memory.num_layers):
        part = taken.payload[layer * size : (layer + 1) * size]
        blocks.load_layers(taken.blocks, layer, 1, part)
    blocks.name_loaded(taken.blocks, taken.names)
