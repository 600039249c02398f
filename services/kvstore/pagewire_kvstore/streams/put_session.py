"""The blocks of one Put stream: announced, received and published. put_stream converts messages."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from pagewire_kvstore.blocks.tenants import Tenants
from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, Reservation, StoreLayout
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.streams.assembly import Assembly
from pagewire_kvstore.streams.limits import ByteBudget
from pagewire_kvstore.streams.shared_assembly import SharedAssembly
from pagewire_shared.errors import InvalidRequestError, OverloadedError
from pagewire_shared.identity.ids import BlockName, short
from pagewire_shared.kv.chunk_convert import KvPiece

MAX_WANTED = 16 * 1024
"""Most blocks that a stream may have announced and not yet published."""

_PUBLISHED_AT_ONCE = 16

LOOP_BYTES = 1024 * 1024
"""A larger block is copied and checked in a thread: 40 MiB take 4 ms, which would stop all other
streams. Copy and check release the interpreter lock."""


async def in_thread(job: Callable[[], None]) -> None:
    """Run `job` in a thread. A cancelled caller still waits for its end: the memory that `job` uses
    is freed afterwards."""
    done = asyncio.get_running_loop().run_in_executor(None, job)
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        raise


def _stream_bytes(budget: ByteBudget) -> int:
    # One stream may take at most half of the budget.
    return budget.max_bytes // 2


def check_block_size(layout: StoreLayout, budget: ByteBudget) -> None:
    """Raise InvalidRequestError for blocks that are too large for the budget of a stream."""
    num_bytes = sum(layout.group_bytes)
    if num_bytes > _stream_bytes(budget):
        raise InvalidRequestError(
            f"a block of {num_bytes} bytes is larger than half of --put-buffer-size,"
            f" which is {budget.max_bytes}",
            field="layout.groups",
        )


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of an announcement that the store takes.

    Attributes:
        names: Names of the blocks that it takes.
        offsets: Places in shared memory to write to, one per name and group; empty when the worker
            is to send chunks.
        declined: Names of missing blocks that there is no room for.
    """

    names: list[BlockName]
    offsets: list[int] = field(default_factory=list)
    declined: list[BlockName] = field(default_factory=list)


class PutSession:
    """Blocks of one Put stream. A block is visible once it is complete and published; `close`
    drops all other blocks.

    Args:
        budget: Bytes of partial blocks, of all streams together.
        window: Chunks that a worker has credit for at the start.
    """

    def __init__(
        self, store: BlockStore, budget: ByteBudget, tenants: Tenants, *, window: int
    ) -> None:
        self._store = store
        self._budget = budget
        self._tenants = tenants
        self._window = window
        self._assembly = Assembly(budget)
        self._shared: SharedAssembly = SharedAssembly(store, budget)
        self._num_taken = 0
        self.num_no_room = 0
        """Blocks that were declined or not stored for want of room."""

    @property
    def is_waiting(self) -> bool:
        """Whether chunks, or the publishing of blocks, are still to come."""
        return self._num_under_way > 0

    @property
    def _num_under_way(self) -> int:
        return len(self._assembly) + len(self._shared)

    def announce(
        self,
        layout: StoreLayout,
        names: Sequence[BlockName],
        tenant: str,
        *,
        in_shared_memory: bool = False,
    ) -> Wanted:
        """Return the blocks that the store takes now; a block under way is not wanted twice.

        Raises InvalidRequestError, or ForbiddenError for the tenant.
        """
        self._tenants.check(tenant)
        check_block_size(layout, self._budget)
        block_bytes = sum(layout.group_bytes)
        lacking = [name for name in names if not self._has(layout, name)]
        held_bytes = self._assembly.held_bytes + self._shared.held_bytes
        free_bytes = min(self._budget.free_bytes, _stream_bytes(self._budget) - held_bytes)
        num_blocks = min(max(0, free_bytes) // block_bytes, MAX_WANTED - self._num_under_way)
        if not self._store.quota_fits(tenant, block_bytes):
            num_blocks = 0
        chosen = lacking[:num_blocks]
        if in_shared_memory:
            wanted = self._reserve(layout, chosen, tenant)
        else:
            self._assembly.want(chosen, layout, tenant)
            wanted = Wanted(chosen)
        # Accepted names are a prefix of the list.
        wanted.declined.extend(lacking[len(wanted.names) :])
        self.num_no_room += len(wanted.declined)
        return wanted

    def _reserve(self, layout: StoreLayout, names: Sequence[BlockName], tenant: str) -> Wanted:
        wanted = Wanted([])
        for name in names:
            offsets = self._shared.want(name, layout, tenant)
            if offsets is None:
                break
            wanted.names.append(name)
            wanted.offsets.extend(offsets)
        return wanted

    def _has(self, layout: StoreLayout, name: BlockName) -> bool:
        if name in self._assembly or name in self._shared:
            return True
        groups = range(len(layout.group_bytes))
        return all(self._store.holds(BlockKey(layout.layout_id, group, name)) for group in groups)

    def add(self, piece: KvPiece) -> int:
        """Add a chunk; return the number of credits to give back to the worker, often 0.

        Chunks are added one by one as they are read. A chunk that was sent without credit waits in
        the transport, where it costs the store no memory; the store cannot detect it.
        Raises InvalidRequestError, see Assembly.add.
        """
        self._assembly.add(piece)
        self._num_taken += 1
        # Not one message of credit per chunk: half a window is enough to keep a sender busy.
        if self._num_taken < max(1, self._window // 2):
            return 0
        num_taken, self._num_taken = self._num_taken, 0
        return num_taken

    async def publish(self, names: Sequence[BlockName]) -> list[BlockName]:
        """Make complete blocks visible; return their names, without those that had no room.

        Raises InvalidRequestError, and makes no block visible, when one is not complete.
        """
        for name in names:
            if not self._assembly.is_whole(name):
                raise InvalidRequestError(f"block {short(name)} is not complete", field="names")
        published = []
        for number, name in enumerate(names, start=1):
            try:
                await self._put(self._assembly.take(name))
            except (OverloadedError, InvalidRequestError):
                # The worker sees that its name is absent. A block that never fits is not wanted.
                self.num_no_room += 1
            else:
                published.append(name)
            if number % _PUBLISHED_AT_ONCE == 0:
                # Copies of many MiB must not delay the other streams.
                await asyncio.sleep(0)
        return published

    async def _put(self, records: Sequence[BlockRecord]) -> None:
        """Store a block as BlockStore.put does; a large one is copied in a thread."""
        if sum(len(record.payload) for record in records) <= LOOP_BYTES:
            self._store.put(records)
            return
        reserved: list[Reservation] = []
        try:
            for record in records:
                one = self._store.reserve(record.key, len(record.payload), record.tenant)
                if one is None:
                    raise OverloadedError("there is no room for all groups of a block at a time")
                reserved.append(one)
            payloads = [record.payload for record in records]
            await in_thread(functools.partial(self._store.fill, reserved, payloads))
        except BaseException:
            for one in reserved:
                self._store.abandon(one)
            raise
        self._store.commit(reserved, [record.checksum for record in records])

    async def publish_shared(
        self, names: Sequence[BlockName], checksums: Sequence[int]
    ) -> list[BlockName]:
        """Make blocks that were written to shared memory visible; return them.

        Args:
            checksums: CRC-32C of their payloads, one per name and group.

        Raises InvalidRequestError, and makes no block visible, when a checksum does not match.
        """
        num_groups = [self._shared.num_groups(name) for name in names]
        if sum(num_groups) != len(checksums):
            raise InvalidRequestError(
                f"{len(checksums)} checksums for {sum(num_groups)} payloads", field="checksums"
            )
        remaining = iter(checksums)
        blocks = [
            (name, list(islice(remaining, number)))
            for name, number in zip(names, num_groups, strict=True)
        ]
        for name, own in blocks:
            # Reading many MiB must not delay the other streams.
            if self._shared.num_bytes(name) > LOOP_BYTES:
                await in_thread(self._shared.checking(name, own))
            else:
                self._shared.checking(name, own)()
                await asyncio.sleep(0)
        for name, own in blocks:
            self._shared.publish(name, own)
        return list(names)

    def close(self) -> None:
        """Drop the blocks that were not published."""
        self._assembly.drop()
        self._shared.drop()
