"""A probe of a pair of workers: blocks computed on one and moved to the other; plain data."""

from dataclasses import dataclass

from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.transport import KvTransport


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    """How a probe ended. Both workers keep its blocks until the probe is ended.

    Attributes:
        names: Of the blocks that arrived.
        num_bytes: Payload that arrived.
        seconds: From the order to the last block.
        transport: How they moved; None when none did.
        error: Why it failed; None when it did not.
    """

    prefill: bytes
    decode: bytes
    names: tuple[BlockName, ...]
    num_bytes: int
    seconds: float
    transport: KvTransport | None
    error: str | None
