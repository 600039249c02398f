"""Assembles pieces of blocks, in order, into verified payloads; holds one block at most."""

from collections.abc import Iterable, Sequence

from pagewire_shared.errors import WireError
from pagewire_shared.identity.ids import short
from pagewire_shared.kv.checksum import joined_crc32c
from pagewire_shared.kv.chunk_convert import KvPiece
from pagewire_shared.kv.tier import STORE_TIERS
from pagewire_worker.offload.connector import LoadedBlock


class IncomingBlocks:
    """The blocks of one load.

    Args:
        names: Requested names, in order.

    Attributes:
        damage: Why the load ended at a damaged block; None without damage.
    """

    def __init__(self, names: Sequence[bytes], bytes_per_block: int) -> None:
        self.damage: str | None = None
        self._names = names
        self._bytes_per_block = bytes_per_block
        self._num_done = 0
        self._missing: set[bytes] = set()
        self._tier = ""
        self._parts: list[bytes | memoryview] = []
        self._num_bytes = 0
        self._checksum = 0

    @property
    def is_over(self) -> bool:
        """Whether no further message can be used."""
        return (
            self.damage is not None
            or self._num_done == len(self._names)
            or self._names[self._num_done] in self._missing
        )

    def set_tier(self, tier: str) -> None:
        """Set the tier of the next blocks. Raises WireError for an unknown tier."""
        if tier not in STORE_TIERS:
            raise WireError(f"source: {tier[:20]!r} is none of {', '.join(STORE_TIERS)}")
        self._tier = tier

    def add_missing(self, names: Iterable[bytes]) -> None:
        """Note blocks that will not come. Raises WireError for a block that was not requested."""
        missing = set(names)
        if not missing <= set(self._names):
            raise WireError("missing: a block that was not asked for")
        self._missing |= missing

    def add_piece(self, piece: KvPiece) -> LoadedBlock | None:
        """Add the next piece and return the block that it completes.

        Raises:
            WireError: The piece is not the next one of the next block.
        """
        self._check(piece)
        data_checksum = piece.data_checksum
        if data_checksum is None:
            self.damage = "chunk_checksum"
            return None
        self._parts.append(piece.data)
        self._num_bytes += len(piece.data)
        self._checksum = joined_crc32c(self._checksum, data_checksum, len(piece.data))
        return self._finish(piece) if piece.is_last else None

    def add_whole(self, name: bytes, payload: bytes | memoryview | None) -> LoadedBlock | None:
        """Add a whole block that was verified; a damaged one has no `payload`.

        Raises:
            WireError: The block is not the next one.
        """
        if self.is_over:
            raise WireError(f"shared: block {short(name)} comes after the last one")
        self._check_next(name)
        if self._num_bytes:
            raise WireError(f"shared: block {short(name)} has come in part")
        if payload is None:
            self.damage = "shared_checksum"
            return None
        self._num_done += 1
        return LoadedBlock(name, payload, self._tier)

    def _finish(self, piece: KvPiece) -> LoadedBlock | None:
        if piece.payload_checksum != self._checksum:
            self.damage = "payload_checksum"
            return None
        payload = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._num_bytes, self._checksum = [], 0, 0
        self._num_done += 1
        return LoadedBlock(piece.name, payload, self._tier)

    def _check(self, piece: KvPiece) -> None:
        self._check_next(piece.name)
        expected = piece.name
        if piece.group or piece.first_layer or piece.num_layers:
            raise WireError(f"chunk: block {short(expected)} has one group, which comes whole")
        if piece.offset != self._num_bytes:
            raise WireError(
                f"chunk: block {short(expected)}: byte {self._num_bytes} is next, "
                f"not {piece.offset}"
            )
        num_bytes = self._num_bytes + len(piece.data)
        is_whole = num_bytes == self._bytes_per_block
        if not piece.data or num_bytes > self._bytes_per_block or piece.is_last != is_whole:
            raise WireError(
                f"chunk: block {short(expected)} has {self._bytes_per_block} bytes, "
                f"{num_bytes} came"
            )

    def _check_next(self, name: bytes) -> None:
        expected = self._names[self._num_done]
        if name != expected:
            raise WireError(f"block {short(name)} came instead of {short(expected)}")
        if not self._tier:
            raise WireError(f"block {short(name)} came before the tier that it comes from")
