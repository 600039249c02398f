"""The disk tier: blocks as files of one folder, bounded by bytes, found again after a restart.

Its methods wait for the disk: call them in a thread. `contains`, `keys` and the counts do not.
Never decides what is stored or for whom.
"""

import contextlib
import errno
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pagewire_kvstore.block_key import BlockKey
from pagewire_kvstore.disk_files import DiskFiles
from pagewire_kvstore.disk_index import DiskEntry, DiskIndex, EvictionPlan
from pagewire_kvstore.record import BlockRecord
from pagewire_kvstore.record_codec import CorruptRecordError, encode_record
from pagewire_kvstore.tier_errors import (
    RecordTooLargeError,
    TierPinnedError,
    TierUnavailableError,
)
from pagewire_shared.errors import InvalidRequestError

_logger = logging.getLogger(__name__)

TOUCH_SECONDS = 60.0
"""A hit writes the file's time at most this often: a hot block would otherwise cost a write of
metadata for every read, and the order after a restart need not be finer."""


def _nothing_pinned(key: BlockKey) -> bool:
    return False


class DiskTier:
    """Blocks in files.

    What is read is verified, always; so files need not be synced to the medium: one that a power
    loss tore is found by its checksums and is a miss, like any other. While records are written,
    their temporary files come on top of the capacity.

    Attributes:
        num_hits: Gets that found a whole, right record.
        num_misses: All other gets, corrupt files included.
        num_corrupt: Files that were not the record they should be, and went to quarantine.
        num_faults: Errors of the file system, those that were raised included.
        num_ignored: Entries of the folder that are no block's file, at the start.
        num_partial: Partial files dropped at the start.
    """

    def __init__(
        self,
        folder: Path,
        capacity_bytes: int,
        *,
        is_pinned: Callable[[BlockKey], bool] = _nothing_pinned,
        is_synced: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the folder, which no other tier may use, and find what is in it.

        Args:
            folder: Made if missing.
            capacity_bytes: Most bytes of all files; what is there and does not fit is evicted.
            is_pinned: Whether a block must stay. Called under a lock: it may neither call the tier
                nor wait.
            is_synced: Wait at every put until the medium has the record's bytes.
            clock: Seconds since the epoch; wall time, since files keep it over restarts.

        Raises TierUnavailableError when the folder cannot be used, InvalidRequestError for a
        capacity of nothing.
        """
        if capacity_bytes <= 0:
            raise InvalidRequestError(f"capacity of {capacity_bytes} bytes", "capacity_bytes")
        self._capacity_bytes = capacity_bytes
        self._is_pinned = is_pinned
        self._is_synced = is_synced
        self._clock = clock
        # Held while names of files change, so that index and folder agree; waits for the disk.
        self._names_lock = threading.Lock()
        # Held for the index and the counts, never while waiting for the disk.
        self._lock = threading.Lock()
        self._reasons_logged: set[str] = set()
        self.num_hits = self.num_misses = self.num_corrupt = self.num_faults = 0
        with self._disk_errors("start"):
            self._files = DiskFiles(folder)
            found = list(self._files.scan())
        self.num_partial = self._files.num_partial
        self.num_ignored = found.count(None)
        self._index = DiskIndex(item for item in found if item is not None)
        surplus = self._index.plan_room(None, 0, capacity_bytes, is_pinned)
        self._evict(surplus)

    @property
    def used_bytes(self) -> int:
        """Bytes of all blocks' files."""
        return self._index.used_bytes

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self._index)

    def contains(self, key: BlockKey) -> bool:
        """Return whether the block is there, as far as can be told without reading it."""
        with self._lock:
            return key in self._index

    def keys(self) -> list[BlockKey]:
        """Return all keys, the least recently used first."""
        with self._lock:
            return self._index.keys()

    def put(self, record: BlockRecord) -> list[BlockKey]:
        """Store a record, in place of one of the same key; return what was evicted for it.

        Raises RecordTooLargeError, TierPinnedError when pinned blocks leave no room,
        TierUnavailableError when the disk fails, InvalidRequestError for what cannot be encoded;
        then nothing has changed.
        """
        header = encode_record(record)
        num_bytes = len(header) + memoryview(record.payload).nbytes
        # Before anything is written; what other threads do meanwhile is seen the second time.
        self._plan_room(record.key, num_bytes)
        now = self._clock()
        with self._disk_errors("put"):
            temp = self._files.write_temp(header, record, now, sync=self._is_synced)
            with self._names_lock:
                try:
                    plan = self._plan_room(record.key, num_bytes)
                except (RecordTooLargeError, TierPinnedError):
                    temp.unlink()
                    raise
                # First the part that can fail, so that a failed put evicts nothing.
                self._files.publish(temp, record.key)
                with self._lock:
                    self._index.add(record.key, DiskEntry(num_bytes, now))
                return self._evict(plan)

    def get(self, key: BlockKey) -> BlockRecord | None:
        """Return the block, verified, or None. Raises TierUnavailableError when the disk fails."""
        if not self.contains(key):
            self._count_miss()
            return None
        with self._disk_errors("get"):
            try:
                record: BlockRecord | None = self._files.read(key)
            except (FileNotFoundError, CorruptRecordError):
                # It may have been evicted or replaced just now: look again while no name changes.
                record = self._read_again(key)
        if record is None:
            self._count_miss()
        else:
            self._use(key)
        return record

    def remove(self, key: BlockKey) -> bool:
        """Remove a block, pinned or not; return whether it was there.

        Raises TierUnavailableError when the disk fails; then it is still there.
        """
        with self._names_lock:
            if not self.contains(key):
                return False
            with self._disk_errors("remove"):
                self._files.remove(key)
            self._forget(key)
            return True

    def _plan_room(self, key: BlockKey, num_bytes: int) -> EvictionPlan:
        with self._lock:
            if num_bytes > self._capacity_bytes:
                raise RecordTooLargeError(
                    f"a record of {num_bytes} bytes; the disk tier holds {self._capacity_bytes}"
                )
            plan = self._index.plan_room(key, num_bytes, self._capacity_bytes, self._is_pinned)
            if not plan.is_enough:
                raise TierPinnedError(
                    f"no room for {num_bytes} bytes: pinned blocks fill the disk tier"
                )
            return plan

    def _evict(self, plan: EvictionPlan) -> list[BlockKey]:
        with self._lock:
            for key in plan.pinned:
                self._index.use(key)
        for key in plan.victims:
            self._drop(key, self._files.remove)
        return plan.victims

    def _drop(self, key: BlockKey, take_away: Callable[[BlockKey], None]) -> None:
        """Forget a block whose file is taken away; a file that stays takes its room with it."""
        try:
            take_away(key)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._note_fault("evict", error)
            with self._lock:
                entry = self._index.find(key)
                self._capacity_bytes -= entry.num_bytes if entry is not None else 0
        self._forget(key)

    def _read_again(self, key: BlockKey) -> BlockRecord | None:
        with self._names_lock:
            if not self.contains(key):
                return None
            try:
                return self._files.read(key)
            except FileNotFoundError:
                self._forget(key)
            except CorruptRecordError as error:
                with self._lock:
                    self.num_corrupt += 1
                self._log_once(f"block {key.name.hex()} in quarantine", error.reason, error)
                self._drop(key, functools.partial(self._files.quarantine, now=self._clock()))
            return None

    def _use(self, key: BlockKey) -> None:
        now = self._clock()
        with self._lock:
            self.num_hits += 1
            self._index.use(key)
            entry = self._index.find(key)
            # Also when the wall clock went back.
            if entry is None or abs(now - entry.used_at) < TOUCH_SECONDS:
                return
            entry.used_at = now
        try:
            self._files.touch(key, now)
        except FileNotFoundError:
            pass
        except OSError as error:
            # The block itself was read; only its place in the order after a restart is lost.
            self._note_fault("touch", error)

    def _count_miss(self) -> None:
        with self._lock:
            self.num_misses += 1

    def _forget(self, key: BlockKey) -> None:
        with self._lock:
            self._index.remove(key)

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
        with self._lock:
            self.num_faults += 1
        self._log_once(action, f"{action} {reason}", error)
        return reason

    def _log_once(self, what: str, reason: str, error: Exception) -> None:
        with self._lock:
            if reason in self._reasons_logged:
                return
            self._reasons_logged.add(reason)
        _logger.warning("disk tier: %s: %s; later ones are only counted", what, error)
