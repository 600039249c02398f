"""Blocks as files of one folder, bounded by bytes, found again after a restart.

Methods wait for the disk, except `contains`, `keys` and the counts: call them in a thread, as
DiskTier does.
"""

import contextlib
import errno
import functools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord
from pagewire_kvstore.tiers.disk.files import DiskFiles, FoundFile
from pagewire_kvstore.tiers.disk.index import DiskIndex
from pagewire_kvstore.tiers.errors import RecordTooLargeError, TierPinnedError, TierUnavailableError
from pagewire_kvstore.tiers.health import FaultLog
from pagewire_kvstore.tiers.record_codec import CorruptRecordError, encode_record
from pagewire_shared.errors import InvalidRequestError


def _nothing_pinned(key: BlockKey) -> bool:
    return False


def _no_quota(tenant: str) -> int | None:
    return None


class DiskBlocks:
    """Blocks in files.

    Every read verifies checksums, so files need not be synced to the medium: a file that a power
    loss tore is a miss. Temporary files of records being written come on top of the capacity.

    Attributes:
        num_ignored: Entries of the folder that were not block files at the start.
        num_partial: Partial files dropped at the start.
        num_evicted: Blocks removed to make room for others.
    """

    def __init__(
        self,
        folder: Path,
        capacity_bytes: int,
        *,
        quota: Callable[[str], int | None] = _no_quota,
        is_pinned: Callable[[BlockKey], bool] = _nothing_pinned,
        is_synced: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Lock the folder for this tier, and index its files.

        Args:
            folder: Made if missing.
            capacity_bytes: Most bytes of all files; files found beyond it are evicted.
            quota: Bound of a tenant's files in bytes; None for no bound of its own.
            is_pinned: Whether a block must stay. Called under a lock: it may neither call the tier
                nor wait.
            is_synced: Wait at every put until the medium has the record's bytes.
            clock: Seconds since the epoch; wall time, since files keep it over restarts.

        Raises TierUnavailableError when the folder cannot be used, StartupError when another
        process uses it, InvalidRequestError for a capacity that is not positive.
        """
        if capacity_bytes <= 0:
            raise InvalidRequestError(f"capacity of {capacity_bytes} bytes", "capacity_bytes")
        self._is_synced = is_synced
        self._clock = clock
        # Locked while file names change, so that index and folder agree; may wait for the disk.
        self._names_lock = threading.Lock()
        self._index = DiskIndex(capacity_bytes, quota, is_pinned)
        self.log = FaultLog("disk")
        self.num_evicted = 0
        with self._disk_errors("start"):
            self._files = DiskFiles(folder)
            try:
                found = list(self._files.scan())
            except BaseException:
                self._files.close()
                raise
        self.num_partial = self._files.num_partial
        self.num_ignored = found.count(None)
        self._take_in([file for file in found if file is not None])

    def _take_in(self, found: list[FoundFile]) -> None:
        """Add the files that were found as if they had been put in the order of their use."""
        for file in sorted(found, key=lambda file: (file.used_at, file.key)):
            if file.tenant is None:
                self._set_aside(file.key, "its header does not fit its name and size")
                continue
            try:
                evicted = self._index.room_for(file.key, file.num_bytes, file.tenant)
            except (RecordTooLargeError, TierPinnedError):
                self._drop(file.key, self._files.remove)
                continue
            self._evict(evicted)
            self._index.add(file.key, file.num_bytes, file.tenant, file.used_at)

    def close(self) -> None:
        """Unlock the folder; no method may be called afterwards."""
        self._files.close()

    @property
    def used_bytes(self) -> int:
        """Bytes of all blocks' files."""
        return self._index.used_bytes

    @property
    def capacity_bytes(self) -> int:
        """Most bytes of all blocks' files."""
        return self._index.capacity_bytes

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self._index)

    @property
    def num_hits(self) -> int:
        """Gets that found an intact record."""
        return self._index.num_hits

    @property
    def num_misses(self) -> int:
        """All other gets, corrupt files included."""
        return self._index.num_misses

    @property
    def num_corrupt(self) -> int:
        """Files that were not the expected record and moved to quarantine, also at the start."""
        return self.log.num_corrupt

    @property
    def num_faults(self) -> int:
        """Errors of the file system, raised or not."""
        return self.log.num_faults

    def contains(self, key: BlockKey) -> bool:
        """Return whether the index has the block; its file is not read."""
        return key in self._index

    def keys(self) -> list[BlockKey]:
        """Return all keys, the least recently used first."""
        return self._index.keys()

    def put(self, record: BlockRecord) -> list[BlockKey]:
        """Store a record, which replaces one of the same key; return the evicted keys.

        Raises RecordTooLargeError, TierPinnedError when pinned blocks leave no room,
        TierUnavailableError when the disk fails, InvalidRequestError for a record that cannot be
        encoded. An error changes nothing.
        """
        header = encode_record(record)
        num_bytes = len(header) + memoryview(record.payload).nbytes
        # Fails early; repeated below, because other threads may add blocks during the write.
        self._index.room_for(record.key, num_bytes, record.tenant)
        now = self._clock()
        with self._disk_errors("put"):
            temp = self._files.write_temp(header, record, now, sync=self._is_synced)
            with self._names_lock:
                self._index.write_off()
                try:
                    evicted = self._index.room_for(record.key, num_bytes, record.tenant)
                except (RecordTooLargeError, TierPinnedError):
                    temp.unlink()
                    raise
                # The step that can fail comes first, so that a failed put evicts nothing.
                self._files.publish(temp, record.key)
                self._evict(evicted)
                self._index.add(record.key, num_bytes, record.tenant, now)
                return evicted

    def get(self, key: BlockKey) -> BlockRecord | None:
        """Return the block, verified, or None. Raises TierUnavailableError when the disk fails."""
        if not self.contains(key):
            self._index.miss()
            return None
        with self._disk_errors("get"):
            try:
                record: BlockRecord | None = self._files.read(key)
            except (FileNotFoundError, CorruptRecordError):
                # The file may have been evicted or replaced just now: read again under the lock.
                record = self._read_again(key)
        if record is None:
            self._index.miss()
        else:
            self._use(key)
        return record

    def remove(self, key: BlockKey) -> bool:
        """Remove a block, pinned or not; return whether the tier had it.

        Raises TierUnavailableError when the disk fails; the block then stays.
        """
        with self._names_lock:
            if not self.contains(key):
                return False
            with self._disk_errors("remove"):
                self._files.remove(key)
            self._index.remove(key)
            return True

    def tenant_keys(self, tenant: str) -> list[BlockKey]:
        """Return the keys of a tenant, the least recently used first."""
        return self._index.tenant_keys(tenant)

    def delete_tenant(self, tenant: str) -> list[BlockKey]:
        """Remove all blocks of a tenant, pinned or not; return their keys.

        Raises TierUnavailableError when some could not be removed; all others are removed.
        """
        removed: list[BlockKey] = []
        error: TierUnavailableError | None = None
        for key in self._index.tenant_keys(tenant):
            try:
                if self.remove(key):
                    removed.append(key)
            except TierUnavailableError as failure:
                error = failure
        if error is not None:
            raise error
        return removed

    def probe_write(self, num_bytes: int) -> None:
        """Write a file of that size and remove it. Raises TierUnavailableError when that fails."""
        with self._disk_errors("write"):
            self._files.try_write(num_bytes)

    def _evict(self, keys: list[BlockKey]) -> None:
        self.num_evicted += len(keys)
        for key in keys:
            self._drop(key, self._files.remove)

    def _drop(self, key: BlockKey, take_away: Callable[[BlockKey], None]) -> None:
        """Remove a block's file, then its entry; a file that cannot be removed reduces capacity."""
        try:
            take_away(key)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note_fault("evict", error)
            self._index.lose(key)
        self._index.remove(key)

    def _read_again(self, key: BlockKey) -> BlockRecord | None:
        with self._names_lock:
            if not self.contains(key):
                return None
            try:
                return self._files.read(key)
            except FileNotFoundError:
                self._index.remove(key)
            except CorruptRecordError as error:
                self._set_aside(key, error.message, error.reason)
            return None

    def _set_aside(self, key: BlockKey, why: str, reason: str = "header") -> None:
        self.log.corrupt(key.name.hex(), reason, why)
        self._drop(key, functools.partial(self._files.quarantine, now=self._clock()))

    def _use(self, key: BlockKey) -> None:
        now = self._clock()
        if not self._index.use(key, now):
            return
        try:
            self._files.touch(key, now)
        except FileNotFoundError:
            pass
        except OSError as error:
            # The block was read; only its place in the order of use after a restart is lost.
            self._note_fault("touch", error)

    @contextlib.contextmanager
    def _disk_errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = self._note_fault(action, error)
            raise TierUnavailableError(
                f"the disk tier cannot {action}: {error}", tier="disk", reason=reason
            ) from error

    def _note_fault(self, action: str, error: OSError) -> str:
        reason = errno.errorcode.get(error.errno or 0, "unknown")
        self.log.fault(action, reason, str(error))
        return reason
