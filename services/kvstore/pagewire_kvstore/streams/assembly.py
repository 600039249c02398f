"""Assembles the chunks of incoming blocks into whole payloads, within a budget of bytes."""

from collections.abc import Collection
from dataclasses import dataclass, field

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, StoreLayout
from pagewire_kvstore.streams.limits import ByteBudget
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import BlockName, short
from pagewire_shared.kv.checksum import joined_crc32c
from pagewire_shared.kv.chunk_convert import KvPiece


@dataclass(slots=True)
class _Partial:
    payload: bytearray | memoryview
    num_bytes: int = 0
    checksum: int = 0
    is_whole: bool = False


@dataclass(slots=True)
class _Wanted:
    layout: StoreLayout
    tenant: str
    partials: dict[int, _Partial] = field(default_factory=dict)


class Assembly:
    """The blocks of one stream that the store wants.

    `want` takes the bytes of a block from the budget, so no chunk of a wanted block is refused for
    want of room.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._wanted: dict[BlockName, _Wanted] = {}
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes taken from the budget."""
        return self._held_bytes

    def __contains__(self, name: BlockName) -> bool:
        return name in self._wanted

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, names: Collection[BlockName], layout: StoreLayout, tenant: str) -> None:
        """Accept chunks of these blocks from now on.

        Raises OverloadedError, and accepts none of them, when the budget has no room.
        """
        num_bytes = sum(layout.group_bytes) * len(names)
        self._budget.take(num_bytes)
        self._held_bytes += num_bytes
        for name in names:
            assert name not in self._wanted, "wanted twice"
            self._wanted[name] = _Wanted(layout, tenant)

    def add(self, piece: KvPiece) -> None:
        """Add a chunk: the next bytes of its block.

        Raises:
            InvalidRequestError: The chunk is damaged, of a block that is not wanted, not the next
                one, or longer than its block. The stream may then publish none of its blocks.
        """
        name = short(piece.name)
        data_checksum = piece.data_checksum
        if data_checksum is None:
            raise InvalidRequestError(f"a chunk of block {name} has another checksum")
        wanted = self._wanted.get(piece.name)
        if wanted is None:
            raise InvalidRequestError(f"block {name} was not announced, or is not wanted")
        if piece.group >= len(wanted.layout.group_bytes):
            raise InvalidRequestError(f"block {name}: the layout has no group {piece.group}")
        if piece.first_layer or piece.num_layers:
            raise InvalidRequestError(f"block {name}: blocks are stored whole, not layer by layer")
        size = wanted.layout.group_bytes[piece.group]
        partial = wanted.partials.get(piece.group)
        num_before = 0 if partial is None else partial.num_bytes
        if (partial is not None and partial.is_whole) or piece.offset != num_before:
            raise InvalidRequestError(
                f"block {name}: byte {num_before} is next, not {piece.offset}"
            )
        num_bytes = num_before + len(piece.data)
        if num_bytes > size or not piece.data or piece.is_last != (num_bytes == size):
            raise InvalidRequestError(
                f"block {name} has {size} bytes; {num_bytes} came"
                + (" and no more will" if piece.is_last else "")
            )
        before = 0 if partial is None else partial.checksum
        checksum = joined_crc32c(before, data_checksum, len(piece.data))
        if piece.payload_checksum not in (None, checksum if piece.is_last else None):
            raise InvalidRequestError(f"block {name} has another checksum than its pieces")
        if partial is None:
            partial = wanted.partials[piece.group] = _begin(piece, size)
        if not isinstance(partial.payload, memoryview):
            partial.payload[num_before:num_bytes] = piece.data
        partial.num_bytes = num_bytes
        partial.checksum = checksum
        partial.is_whole = piece.is_last

    def is_whole(self, name: BlockName) -> bool:
        """Return whether all groups of a block have arrived."""
        wanted = self._wanted.get(name)
        if wanted is None:
            return False
        whole = [partial for partial in wanted.partials.values() if partial.is_whole]
        return len(whole) == len(wanted.layout.group_bytes)

    def take(self, name: BlockName) -> list[BlockRecord]:
        """Return a whole block, one record per group, and forget it.

        Raises:
            InvalidRequestError: A part of the block has not arrived.
        """
        if not self.is_whole(name):
            raise InvalidRequestError(f"block {short(name)} is not complete")
        wanted = self._wanted[name]
        self._forget(name)
        return [
            BlockRecord(
                BlockKey(wanted.layout.layout_id, group, name),
                wanted.tenant,
                memoryview(partial.payload).toreadonly(),
                partial.checksum,
            )
            for group, partial in sorted(wanted.partials.items())
        ]

    def drop(self) -> None:
        """Drop all blocks and give their bytes back to the budget."""
        for name in list(self._wanted):
            self._forget(name)

    def _forget(self, name: BlockName) -> None:
        num_bytes = sum(self._wanted.pop(name).layout.group_bytes)
        self._held_bytes -= num_bytes
        self._budget.give(num_bytes)


def _begin(piece: KvPiece, size: int) -> _Partial:
    # A block in one piece is not copied: its payload stays in the message.
    is_alone = len(piece.data) == size
    return _Partial(memoryview(piece.data) if is_alone else bytearray(size))
