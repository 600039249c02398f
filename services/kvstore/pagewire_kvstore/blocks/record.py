"""A block as it rests in a tier: whose it is, and its bytes. Plain data."""

from dataclasses import dataclass

from pagewire_kvstore.blocks.block_key import BlockKey


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """One whole block.

    Attributes:
        key: What it is found by.
        tenant: Whose quota it counts towards; empty for the default tenant.
        payload: The bytes of all layers of its group.
        checksum: CRC-32C of the payload.
    """

    key: BlockKey
    tenant: str
    payload: bytes | memoryview
    checksum: int
