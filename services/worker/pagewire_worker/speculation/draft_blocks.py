"""The blocks of a draft model's cache: which tokens of which slot lie in them.

Keys and values are a function of tokens, so each slot keeps the tokens that its blocks were
computed of. They are compared with the tokens of its sequence. So wrong drafts, failed steps and
other sequences in the slot need no event, and a lost block costs a computation.
"""

from collections.abc import Collection

import numpy as np
import numpy.typing as npt


class DraftBlocks:
    """Tokens and block tables by slot, over a pool that evicts the slot used least recently.

    Args:
        longest: Tokens of the longest sequence.

    Attributes:
        tokens: The tokens of each slot, known and guessed, int32 [num_slots, longest].
        num_computed: Of these, tokens with keys and values, [num_slots].
        tables: Blocks of each slot in order of position, [num_slots, most blocks].
        num_blocks: Of these, blocks that the slot holds, [num_slots].
    """

    def __init__(self, *, num_slots: int, num_blocks: int, block_size: int, longest: int) -> None:
        self.block_size = block_size
        self.longest = longest
        self.tokens = np.zeros((num_slots, longest), dtype=np.int32)
        self.num_computed = np.zeros(num_slots, dtype=np.int64)
        self.tables = np.zeros((num_slots, -(-longest // block_size)), dtype=np.int64)
        self.num_blocks = np.zeros(num_slots, dtype=np.int64)
        self._holders = np.zeros(num_blocks, dtype=np.int64)
        self._free = list(range(num_blocks - 1, -1, -1))
        self._used_at = np.zeros(num_slots, dtype=np.int64)
        self._clock = 0

    @property
    def capacity(self) -> int:
        """Blocks of the pool."""
        return len(self._holders)

    @property
    def num_free(self) -> int:
        """Blocks that no slot holds."""
        return len(self._free)

    def follow(self, slot: int, tokens: npt.NDArray[np.int32]) -> int:
        """Make `tokens` [n] those of `slot`, n from 1 to `longest`; return how many are computed.

        The last one is not among them: it gives the first draft.
        """
        kept = self._num_common(slot, tokens)
        self.tokens[slot, kept : len(tokens)] = tokens[kept:]
        kept = min(kept, len(tokens) - 1)
        # Others read what they share: it is not written again.
        first = kept // self.block_size
        blocks = self.tables[slot, first : self.num_blocks[slot]]
        shared = np.flatnonzero(self._holders[blocks] > 1)
        if len(shared):
            self._give_back(slot, first + int(shared[0]))
            kept = min(kept, (first + int(shared[0])) * self.block_size)
        self.num_computed[slot] = kept
        return kept

    def share(self, slot: int, source: int, tokens: npt.NDArray[np.int32]) -> None:
        """Let an empty `slot` with `tokens` [n] hold the full blocks that `source` has of them."""
        num_blocks = min(self._num_common(source, tokens), len(tokens) - 1) // self.block_size
        blocks = self.tables[source, :num_blocks]
        self.tables[slot, :num_blocks] = blocks
        self._holders[blocks] += 1
        self.num_blocks[slot] = num_blocks
        self.num_computed[slot] = num_blocks * self.block_size
        self.tokens[slot, : len(tokens)] = tokens

    def reserve(self, slot: int, num_tokens: int, held: Collection[int]) -> bool:
        """Give `slot` blocks for `num_tokens`; return whether there are as many.

        Args:
            held: Slots that lose no block for it.
        """
        self._clock += 1
        self._used_at[slot] = self._clock
        begin, end = int(self.num_blocks[slot]), -(-num_tokens // self.block_size)
        while len(self._free) < end - begin:
            victims = [one for one in np.flatnonzero(self.num_blocks).tolist() if one not in held]
            if not victims:
                return False
            self.drop(min(victims, key=lambda one: self._used_at[one]))
        for index in range(begin, end):
            block = self._free.pop()
            self._holders[block] = 1
            self.tables[slot, index] = block
        self.num_blocks[slot] = max(begin, end)
        return True

    def drop(self, slot: int) -> None:
        """Forget what is computed of `slot`."""
        self._give_back(slot, 0)
        self.num_computed[slot] = 0

    def clear(self) -> None:
        """Forget all."""
        for slot in np.flatnonzero(self.num_blocks).tolist():
            self.drop(slot)

    def _num_common(self, slot: int, tokens: npt.NDArray[np.int32]) -> int:
        """Return how many of the first `tokens` are computed in `slot`."""
        num = min(int(self.num_computed[slot]), len(tokens))
        is_other = self.tokens[slot, :num] != tokens[:num]
        return int(is_other.argmax()) if is_other.any() else num

    def _give_back(self, slot: int, kept: int) -> None:
        """Keep the first `kept` blocks of `slot`."""
        for block in self.tables[slot, kept : self.num_blocks[slot]].tolist():
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free.append(block)
        self.num_blocks[slot] = min(kept, int(self.num_blocks[slot]))
