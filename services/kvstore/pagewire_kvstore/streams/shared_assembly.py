"""The blocks that a peer writes to shared memory: reserved, checked in place and published."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pagewire_kvstore.blocks.types import BlockKey, Reservation, StoreLayout
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.streams.limits import ByteBudget
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import BlockName, short
from pagewire_shared.kv.checksum import crc32c


@dataclass(frozen=True, slots=True)
class _Reserved:
    groups: list[Reservation]
    num_bytes: int


class SharedAssembly:
    """The blocks of one stream that the store wants in shared memory.

    A block is read and checked once, when it is published. Readers detect later writes of the peer,
    and writes to an extent that it abandoned, by the checksum.
    """

    def __init__(self, store: BlockStore, budget: ByteBudget) -> None:
        self._store = store
        self._budget = budget
        self._reserved: dict[BlockName, _Reserved] = {}
        self.held_bytes = 0
        """Bytes taken from the budget."""

    def __contains__(self, name: BlockName) -> bool:
        return name in self._reserved

    def __len__(self) -> int:
        return len(self._reserved)

    def want(self, name: BlockName, layout: StoreLayout, tenant: str) -> list[int] | None:
        """Reserve memory for a block; return its offsets, one per group, or None without room."""
        groups: list[Reservation] = []
        for group, num_bytes in enumerate(layout.group_bytes):
            key = BlockKey(layout.layout_id, group, name)
            reservation = self._store.reserve(key, num_bytes, tenant)
            if reservation is None:
                self._abandon(groups)
                return None
            groups.append(reservation)
        num_bytes = sum(layout.group_bytes)
        self._budget.take(num_bytes)
        self.held_bytes += num_bytes
        self._reserved[name] = _Reserved(groups, num_bytes)
        return [reservation.offset for reservation in groups]

    def num_groups(self, name: BlockName) -> int:
        """Return the number of groups of a block. Raises InvalidRequestError if not wanted."""
        reserved = self._reserved.get(name)
        if reserved is None:
            raise InvalidRequestError(
                f"block {short(name)} has no place in shared memory", field="names"
            )
        return len(reserved.groups)

    def num_bytes(self, name: BlockName) -> int:
        """Return the size of a wanted block."""
        return self._reserved[name].num_bytes

    def checking(self, name: BlockName, checksums: Sequence[int]) -> Callable[[], None]:
        """Return a function that raises InvalidRequestError when a group has another checksum; any
        thread may call it."""
        groups = list(self._reserved[name].groups)

        def check() -> None:
            for reservation, checksum in zip(groups, checksums, strict=True):
                if crc32c(reservation.view) != checksum:
                    text = f"block {short(name)} in shared memory has another checksum"
                    raise InvalidRequestError(text, field="checksums")

        return check

    def publish(self, name: BlockName, checksums: Sequence[int]) -> None:
        """Make a checked block visible."""
        groups = self._reserved[name].groups
        self._forget(name)
        self._store.commit(groups, list(checksums))

    def drop(self) -> None:
        """Abandon all reservations and give their bytes back to the budget."""
        for name, reserved in list(self._reserved.items()):
            self._forget(name)
            self._abandon(reserved.groups)

    def _forget(self, name: BlockName) -> None:
        num_bytes = self._reserved.pop(name).num_bytes
        self.held_bytes -= num_bytes
        self._budget.give(num_bytes)

    def _abandon(self, groups: list[Reservation]) -> None:
        for reservation in groups:
            self._store.abandon(reservation)
