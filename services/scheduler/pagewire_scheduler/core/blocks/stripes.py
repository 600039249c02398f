"""Stripes of blocks: which blocks of a prefix go to one KV store together."""

from collections.abc import Sequence

from pagewire_scheduler.core.blocks.prefix_cache import NameChain
from pagewire_shared.kv.copies import STRIPE_BLOCKS


def stripe_of(chain: NameChain, index: int, tokens: Sequence[int], num_prompt: int) -> int:
    """Return the stripe of block `index`, 32 bits that rank the stores.

    It is that of the last block that the prompt has in the stripe: prompts that begin alike and
    then differ would else all go to one store. Behind the prompt, whose further names are not
    known, it is that of the first block.
    """
    first = index - index % STRIPE_BLOCKS
    last = min(first + STRIPE_BLOCKS, num_prompt // chain.block_size) - 1
    return int.from_bytes(chain.name(max(first, last), tokens)[:4], "little")
