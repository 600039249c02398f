"""Names the blocks of a prompt before it is submitted, which saves time of the scheduler's loop:
that loop serves every worker. Names never come from clients."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import pack_u32
from pagewire_shared.kv.block_hash import block_names, root_name, tenant_salt

MIN_BLOCKS: Final = 8
"""Shorter prompts cost the scheduler less than the message grows."""

_MAX_BLOCKS_AT_ONCE: Final = 128
_NAME_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockNaming:
    """Inputs of block names on the workers of a model, besides salt and tokens.

    Attributes:
        is_by_tenant: Whether the tenant is part of the salt.
    """

    model_fingerprint: bytes
    layout_fingerprint: bytes
    dtype: str
    block_size: int
    is_by_tenant: bool


@dataclass(frozen=True, slots=True)
class PromptBlocks:
    """Names of the first full blocks of a prompt, 16 bytes each, and of the root before them."""

    root: BlockName
    block_size: int
    names: bytes


async def name_prompt(
    naming: BlockNaming,
    prompt: Sequence[int],
    *,
    tenant: str | None,
    cache_salt: bytes | None,
    adapter_id: bytes = b"",
) -> PromptBlocks | None:
    """Return the names of the blocks of `prompt`; None when they are too few to matter.

    A long prompt is named in a thread, in pieces of about 0.1 ms: hashing so little holds the
    interpreter's lock.
    """
    if len(prompt) < MIN_BLOCKS * naming.block_size:
        return None
    tenant = (tenant or "") if naming.is_by_tenant else ""
    root = root_name(
        model_fingerprint=naming.model_fingerprint,
        layout_fingerprint=naming.layout_fingerprint,
        dtype=naming.dtype,
        salt=tenant_salt(tenant, cache_salt or b""),
        adapter=adapter_id,
    )
    if len(prompt) <= _MAX_BLOCKS_AT_ONCE * naming.block_size:
        names = block_names(root, pack_u32(prompt), naming.block_size)
    else:
        names = await asyncio.to_thread(_in_pieces, root, prompt, naming.block_size)
    return PromptBlocks(root, naming.block_size, names)


def _in_pieces(root: BlockName, prompt: Sequence[int], block_size: int) -> bytes:
    token_ids, parent, pieces = pack_u32(prompt), root, []
    size = 4 * block_size * _MAX_BLOCKS_AT_ONCE
    for start in range(0, len(token_ids), size):
        names = block_names(parent, token_ids[start : start + size], block_size)
        if names:
            parent = BlockName(names[-_NAME_BYTES:])
            pieces.append(names)
        time.sleep(0)  # lets other threads take the lock
    return b"".join(pieces)
