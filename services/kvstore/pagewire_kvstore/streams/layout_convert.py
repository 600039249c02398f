"""Converts a peer's KvLayout message to the layout id and block sizes that the store uses."""

import hashlib

from pagewire_kvstore.blocks.types import StoreLayout
from pagewire_protos.common.v1 import layout_pb2
from pagewire_shared.errors import InvalidRequestError

_FINGERPRINT_BYTES = 32
MAX_BLOCK_BYTES = 1 << 30
MAX_GROUPS = 64


def store_layout(message: layout_pb2.KvLayout) -> StoreLayout:
    """Return a peer's layout. Raises InvalidRequestError that names the wrong field."""
    for name in ("model_fingerprint", "numerics_fingerprint"):
        if len(getattr(message, name)) != _FINGERPRINT_BYTES:
            raise InvalidRequestError(f"{name} must have 32 bytes", field=f"layout.{name}")
    if not 1 <= len(message.groups) <= MAX_GROUPS:
        raise InvalidRequestError(f"a layout has 1 to {MAX_GROUPS} groups", field="layout.groups")
    for group in message.groups:
        if not 1 <= group.bytes_per_block <= MAX_BLOCK_BYTES:
            raise InvalidRequestError(
                f"bytes_per_block must be in [1, {MAX_BLOCK_BYTES}]", field="layout.groups"
            )
        if not group.shard < group.num_shards:
            raise InvalidRequestError("shard must be below num_shards", field="layout.groups")
    # Deterministic: messages without maps and unknown fields are encoded in one way.
    encoded = message.SerializeToString(deterministic=True)
    layout_id = hashlib.sha256(b"pagewire kv layout 1" + encoded).digest()[:16]
    return StoreLayout(layout_id, tuple(group.bytes_per_block for group in message.groups))
