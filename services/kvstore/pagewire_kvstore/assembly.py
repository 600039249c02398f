"""Blocks on their way in: chunks in order become whole payloads, and nothing else does. Pure; its
memory is bounded by what was announced and wanted."""

from collections.abc import Collection
from dataclasses import dataclass, field

from pagewire_kvstore.block_key import BlockKey
from pagewire_kvstore.record import BlockRecord
from pagewire_kvstore.store_layout import StoreLayout
from pagewire_shared.checksum import crc32c
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.ids import BlockName, short
from pagewire_shared.kv_chunk_convert import KvPiece


@dataclass(slots=True)
class _Partial:
    pieces: list[bytes] = field(default_factory=list)
    num_bytes: int = 0
    checksum: int = 0
    is_whole: bool = False


class Assembly:
    """The blocks of one stream that the store wants."""

    def __init__(self, layout: StoreLayout, tenant: str) -> None:
        self._layout = layout
        self._tenant = tenant
        self._wanted: set[BlockName] = set()
        self._partials: dict[BlockKey, _Partial] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes that came and are not taken."""
        return sum(partial.num_bytes for partial in self._partials.values())

    def want(self, names: Collection[BlockName]) -> None:
        """Take chunks of these blocks from now on."""
        self._wanted.update(names)

    def add(self, piece: KvPiece) -> None:
        """Take a chunk: the next bytes of its block.

        Raises:
            InvalidRequestError: It is damaged, of a block that is not wanted, not the next one, or
                longer than its block. Nothing that came in this stream may be published then.
        """
        name = short(piece.name)
        if not piece.is_intact:
            raise InvalidRequestError(f"a chunk of block {name} has another checksum")
        if piece.name not in self._wanted:
            raise InvalidRequestError(f"block {name} was not announced, or is not wanted")
        if piece.group >= len(self._layout.group_bytes):
            raise InvalidRequestError(f"block {name}: the layout has no group {piece.group}")
        if piece.first_layer or piece.num_layers:
            raise InvalidRequestError(f"block {name}: blocks are stored whole, not layer by layer")
        size = self._layout.group_bytes[piece.group]
        key = BlockKey(self._layout.layout_id, piece.group, piece.name)
        partial = self._partials.setdefault(key, _Partial())
        if partial.is_whole or piece.offset != partial.num_bytes:
            raise InvalidRequestError(
                f"block {name}: byte {partial.num_bytes} is next, not {piece.offset}"
            )
        num_bytes = partial.num_bytes + len(piece.data)
        if num_bytes > size or not piece.data or piece.is_last != (num_bytes == size):
            raise InvalidRequestError(
                f"block {name} has {size} bytes; {num_bytes} came"
                + (" and no more will" if piece.is_last else "")
            )
        partial.pieces.append(bytes(piece.data))
        partial.num_bytes = num_bytes
        partial.checksum = crc32c(piece.data, partial.checksum)
        partial.is_whole = piece.is_last

    def take(self, name: BlockName) -> list[BlockRecord]:
        """Return a whole block, one record per group, and forget it.

        Raises:
            InvalidRequestError: Some of it has not come.
        """
        layout_id, num_groups = self._layout.layout_id, len(self._layout.group_bytes)
        keys = [BlockKey(layout_id, group, name) for group in range(num_groups)]
        found = [self._partials.get(key) for key in keys]
        whole = [partial for partial in found if partial is not None and partial.is_whole]
        if len(whole) != num_groups:
            raise InvalidRequestError(f"block {short(name)} is not complete")
        for key in keys:
            del self._partials[key]
        self._wanted.discard(name)
        return [
            BlockRecord(key, self._tenant, b"".join(partial.pieces), partial.checksum)
            for key, partial in zip(keys, whole, strict=True)
        ]
