"""The blocks of a replica with their names: loads blocks from elsewhere, copies them out.

Called from the model thread only.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pagewire_worker.kv.block_copy import fill_staging
from pagewire_worker.kv.block_memory import BlockMemory
from pagewire_worker.kv.block_names import BlockNames
from pagewire_worker.kv.block_observer import BlockObserver
from pagewire_worker.kv.device_copies import DeviceCopies
from pagewire_worker.kv.layer_copy import block_index


class BlockHolder:
    """Blocks of one replica.

    Args:
        memory: Their bytes.
        names: Those that they have.
        observer: Called before blocks are written anew.
        copies: How blocks come from the host and go there.
    """

    def __init__(
        self, memory: BlockMemory, names: BlockNames, observer: BlockObserver, copies: DeviceCopies
    ) -> None:
        self._memory = memory
        self._names = names
        self._observer = observer
        self._copies = copies

    @property
    def memory(self) -> BlockMemory:
        """The bytes of the blocks."""
        return self._memory

    @torch.inference_mode()
    def load_blocks(
        self,
        blocks: Sequence[int],
        names: Sequence[bytes],
        payloads: Sequence[memoryview | bytes],
        staging: Tensor,
    ) -> None:
        """Write payloads that came from elsewhere into blocks that no plan uses, and name them.

        Raises:
            ValueError: A payload has another size than a block; the blocks have no names then.
        """
        self.overwrite(blocks)
        self._copies.wait_for_loads()
        rows = fill_staging(self._memory, payloads, staging)
        self._copies.load(lambda: self._memory.write(blocks, rows))
        for block, name in zip(blocks, names, strict=True):
            self._names.name(block, name)

    def begin_load(self, blocks: Sequence[int]) -> None:
        """Take blocks that no plan uses for what comes layer by layer; they have no names then."""
        self.overwrite(blocks)

    def load_layers(
        self, blocks: Sequence[int], first_layer: int, num_layers: int, payload: Tensor
    ) -> None:
        """Write layers of n blocks that a load has begun; payload as in layer_copy."""
        memory = self._memory
        index = block_index(memory, blocks)
        self._copies.load(lambda: memory.write_layers(index, first_layer, num_layers, payload))

    def name_loaded(self, blocks: Sequence[int], names: Sequence[bytes]) -> None:
        """Name blocks of which a load has written all layers."""
        for block, name in zip(blocks, names, strict=True):
            self._names.name(block, name)

    def copy_out(self, names: Sequence[bytes], staging: Tensor) -> list[int]:
        """Copy the payloads of those of n `names` that are VALID into the rows of `staging`
        [m, bytes], m >= n; return their indices, one per row. Waits for the copy."""
        found = [(number, self._names.find(name)) for number, name in enumerate(names)]
        valid = [(number, block) for number, block in found if block is not None]
        if valid:
            blocks = [block for _, block in valid]
            event = self._copies.copy_out(blocks, lambda: self._memory.read(blocks, staging))
            event.synchronize()
        return [number for number, _ in valid]

    def held_names(self) -> dict[int, bytes]:
        """Return the names of VALID blocks by block id."""
        return self._names.held()

    def is_named(self, block: int, name: bytes) -> bool:
        """Return whether `block` is VALID under that name."""
        return self._names.has(block, name)

    def overwrite(self, blocks: Sequence[int]) -> None:
        """Forget the names of blocks that are about to be written anew."""
        self._observer.overwrite(blocks)
        self._names.forget(blocks)
