"""Names of things that cross process boundaries, as distinct types. Owns no behaviour but
minting."""

import os
from typing import NewType

RequestId = NewType("RequestId", bytes)
"""16 random bytes minted by a frontend; the only key of a request between processes."""

BlockId = NewType("BlockId", int)
"""Index of a block in one worker's KV pool; never leaves the scheduler-worker pair."""

BlockName = NewType("BlockName", bytes)
"""16 bytes naming a block by its content, see block_hash."""

ID_BYTES = 16


def mint_id() -> bytes:
    """Return 16 random bytes."""
    return os.urandom(ID_BYTES)


def mint_request_id() -> RequestId:
    """Return a new request id."""
    return RequestId(mint_id())


def short(identifier: bytes) -> str:
    """Return the first 8 hex digits of an id, for logs and audits."""
    return identifier.hex()[:8]
