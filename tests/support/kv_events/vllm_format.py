"""Types that decode KV events as strictly as vLLM's own: made from the names and types of the
fields of its public contract, of vLLM 0.26 and later."""

from typing import Any

import msgspec

_HASH = int | bytes

_STORED: list[Any] = [
    ("block_hashes", list[_HASH]),
    ("parent_block_hash", _HASH | None),
    ("token_ids", list[int]),
    ("block_size", int),
    ("lora_id", int | None),
    ("medium", str | None),
    ("lora_name", str | None),
    ("extra_keys", list[tuple[Any, ...] | None] | None, None),
    ("group_idx", int | None, None),
    ("kv_cache_spec_kind", str | None, None),
    ("kv_cache_spec_sliding_window", int | None, None),
]
_REMOVED: list[Any] = [
    ("block_hashes", list[_HASH]),
    ("medium", str | None),
    ("group_idx", int | None, None),
]

BlockStored: Any = msgspec.defstruct("BlockStored", _STORED, tag=True, forbid_unknown_fields=True)
BlockRemoved: Any = msgspec.defstruct(
    "BlockRemoved", _REMOVED, tag=True, forbid_unknown_fields=True
)
AllBlocksCleared: Any = msgspec.defstruct("AllBlocksCleared", [], tag=True)

_BATCH: list[Any] = [
    ("ts", float),
    ("events", list[BlockStored | BlockRemoved | AllBlocksCleared]),
    ("data_parallel_rank", int | None, None),
]
Batch: Any = msgspec.defstruct("KVEventBatch", _BATCH, array_like=True)

decoder = msgspec.msgpack.Decoder(Batch)
"""Decodes a payload; it skips a further element behind the rank, as vLLM's does."""
