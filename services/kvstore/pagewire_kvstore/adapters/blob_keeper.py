"""Keeps the content of adapters within a bound of bytes. The one used longest ago leaves first, but
not while it is being read."""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from pagewire_kvstore.adapters import metrics
from pagewire_kvstore.adapters.blob_medium import (
    BlobDraft,
    BlobKey,
    BlobMedium,
    BlobReader,
    whole_pages,
)
from pagewire_shared.adapters.content_id import begin_id
from pagewire_shared.errors import (
    InternalError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    UnavailableError,
)

_logger = logging.getLogger(__name__)

MAX_BLOBS: Final = 16384
"""Adapters of one store; frontends have at most 10000 names each."""

TOUCH_SECONDS: Final = 60.0
"""Shortest time between two notes on the medium that content was used."""

_NUM_THREADS: Final = 4

_T = TypeVar("_T")


@dataclass(slots=True)
class _Blob:
    key: BlobKey
    num_readers: int = 0
    touched_at: float = 0.0


class BlobKeeper:
    """The content of adapters by identity. Its methods run on one event loop.

    Args:
        medium: Where the content lies; called in threads.
        max_bytes: Most bytes, in whole pages, with those on their way in; 0 keeps nothing.
        found: What the medium has, the one used longest ago first.
    """

    def __init__(self, medium: BlobMedium, max_bytes: int, found: Sequence[BlobKey] = ()) -> None:
        self.max_bytes = max_bytes
        self._medium = medium
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="adapters")
        self._blobs = OrderedDict((key.adapter_id, _Blob(key)) for key in found)
        self._num_bytes = sum(whole_pages(key.num_bytes) for key in found)
        self._incoming: dict[bytes, asyncio.Future[None]] = {}
        for key in self._make_room(0):
            medium.remove(key)
        self._show()

    @property
    def num_bytes(self) -> int:
        """Bytes of all content, with what is on its way in."""
        return self._num_bytes

    @property
    def ids(self) -> tuple[bytes, ...]:
        """The identities, the one used longest ago first."""
        return tuple(self._blobs)

    def close(self) -> None:
        """Wait for the calls that are under way."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def begin(self, key: BlobKey) -> "BlobUpload | None":
        """Begin to take content, whose upload the caller closes; None when it is there.

        Waits while another caller writes the same.

        Raises:
            InvalidRequestError: It can never fit.
            OverloadedError, UnavailableError: It cannot be taken now.
        """
        self._check(key)
        while (other := self._incoming.get(key.adapter_id)) is not None:
            await asyncio.wait((other,))
        if await self._use(key.adapter_id) is not None:
            metrics.WRITES.labels(metrics.PRESENT).inc()
            return None
        ended = self._incoming[key.adapter_id] = asyncio.get_running_loop().create_future()
        try:
            draft = await self.run(lambda: self._medium.create(key), "written")
        except BaseException:
            self._end(key, ended)
            raise
        return BlobUpload(self, key, draft, lambda: self._end(key, ended))

    @contextlib.asynccontextmanager
    async def reading(self, adapter_id: bytes) -> AsyncIterator["BlobReading"]:
        """Give content to read, which stays meanwhile.

        Raises:
            ModelNotFoundError: It is not here.
        """
        blob = await self._use(adapter_id)
        if blob is None:
            metrics.READS.labels(metrics.MISSING).inc()
            raise ModelNotFoundError(
                f"adapter {adapter_id.hex()[:16]} is not here",
                field="adapter_id",
                code="adapter_not_found",
            )
        blob.num_readers += 1
        try:
            reader = await self._opened(blob)
            try:
                yield BlobReading(self, blob.key, reader)
            finally:
                await self.run(reader.close, "read")
        finally:
            blob.num_readers -= 1

    async def drop_damaged(self, key: BlobKey, reason: str) -> None:
        """Remove content that is damaged."""
        metrics.READS.labels(metrics.DAMAGED).inc()
        if self._blobs.pop(key.adapter_id, None) is None:
            return
        _logger.error("adapter %s is removed: %s", key.adapter_id.hex()[:16], reason)
        self._num_bytes -= whole_pages(key.num_bytes)
        self._show()
        await self.run(lambda: self._medium.remove(key), "removed")

    def reserve(self, num_before: int, num_bytes: int) -> list[BlobKey]:
        """Reserve more bytes of an upload, in the place of what was used longest ago.

        Args:
            num_before: Bytes of the upload so far.
            num_bytes: Bytes with those that come now.

        Returns:
            What `remove` is to remove first.

        Raises:
            OverloadedError: What is being read or written leaves no room.
        """
        more = whole_pages(num_bytes) - whole_pages(num_before)
        leaving = self._make_room(more)
        self._num_bytes += more
        self._show()
        return leaving

    def remove(self, keys: Sequence[BlobKey]) -> None:
        """Remove content that was forgotten. It blocks."""
        for key in keys:
            self._medium.remove(key)

    def enter(self, key: BlobKey) -> None:
        """Let content that was published be read."""
        self._blobs[key.adapter_id] = _Blob(key, touched_at=time.monotonic())
        metrics.WRITES.labels(metrics.STORED).inc()
        self._show()

    def give_back(self, num_bytes: int) -> None:
        """Take back the bytes of an upload that was discarded."""
        self._num_bytes -= whole_pages(num_bytes)
        self._show()

    async def run(self, job: Callable[[], _T], what: str) -> _T:
        """Return what a blocking call returns; a caller that is cancelled waits for its end.

        Raises:
            UnavailableError: The medium failed; it says that adapters cannot be `what`.
        """
        future = asyncio.get_running_loop().run_in_executor(self._threads, job)
        try:
            return await asyncio.shield(future)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UnavailableError(f"adapters cannot be {what}: {reason}") from error
        finally:
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait((future,))

    def _check(self, key: BlobKey) -> None:
        if whole_pages(key.num_bytes) > self.max_bytes:
            raise InvalidRequestError(
                f"the adapter has {key.num_bytes} bytes, and this store keeps at most "
                f"{self.max_bytes} of all adapters (--adapter-bytes)",
                field="num_weight_bytes",
            )

    async def _use(self, adapter_id: bytes) -> _Blob | None:
        blob = self._blobs.get(adapter_id)
        if blob is None:
            return None
        self._blobs.move_to_end(adapter_id)
        now = time.monotonic()
        if now - blob.touched_at >= TOUCH_SECONDS:
            blob.touched_at = now
            with contextlib.suppress(UnavailableError):  # it costs the order after a restart only
                blob.num_readers += 1
                try:
                    await self.run(lambda: self._medium.touch(blob.key), "touched")
                finally:
                    blob.num_readers -= 1
        return blob

    async def _opened(self, blob: _Blob) -> BlobReader:
        try:
            return await self.run(lambda: self._medium.open(blob.key), "read")
        except UnavailableError as error:
            await self.drop_damaged(blob.key, error.message)
            raise

    def _make_room(self, num_bytes: int) -> list[BlobKey]:
        """Forget content until `num_bytes` more fit; return what is to be removed."""
        left = self.max_bytes - self._num_bytes - num_bytes
        too_many = len(self._blobs) + len(self._incoming) - MAX_BLOBS
        leaving: list[BlobKey] = []
        for blob in self._blobs.values():
            if left >= 0 and len(leaving) >= too_many:
                break
            if not blob.num_readers:
                left += whole_pages(blob.key.num_bytes)
                leaving.append(blob.key)
        if left < 0:
            raise OverloadedError(
                f"what is being read or written leaves no room of the {self.max_bytes} bytes for "
                "adapters (--adapter-bytes)"
            )
        for key in leaving:
            del self._blobs[key.adapter_id]
            self._num_bytes -= whole_pages(key.num_bytes)
        metrics.EVICTIONS.inc(len(leaving))
        return leaving

    def _end(self, key: BlobKey, ended: "asyncio.Future[None]") -> None:
        del self._incoming[key.adapter_id]
        ended.set_result(None)

    def _show(self) -> None:
        metrics.ADAPTERS.set(len(self._blobs))
        metrics.BYTES.set(self._num_bytes)
        metrics.LIMIT.set(self.max_bytes)


class BlobUpload:
    """Content on its way in. `close` it: what is not published is removed then."""

    def __init__(
        self, keeper: BlobKeeper, key: BlobKey, draft: BlobDraft, on_end: Callable[[], None]
    ) -> None:
        self._keeper = keeper
        self._key = key
        self._draft = draft
        self._on_end = on_end
        self._digest = begin_id(key.num_config_bytes)
        self._num_bytes = 0
        self._is_published = False

    async def take(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            InvalidRequestError: They are more than were announced.
            OverloadedError, UnavailableError: They cannot be taken now.
        """
        if self._num_bytes + len(data) > self._key.num_bytes:
            raise InvalidRequestError(
                f"data: more than the {self._key.num_bytes} bytes announced", field="data"
            )
        num_bytes = self._num_bytes + len(data)
        leaving = self._keeper.reserve(self._num_bytes, num_bytes)
        self._num_bytes = num_bytes

        def write() -> None:
            self._keeper.remove(leaving)
            self._draft.write(data)
            self._digest.update(data)

        await self._keeper.run(write, "written")

    async def publish(self) -> None:
        """Let the content be read.

        Raises:
            InvalidRequestError: It is not whole, or has another hash.
            UnavailableError: The medium failed.
        """
        key = self._key
        if self._num_bytes < key.num_bytes:
            raise InvalidRequestError(
                f"data: it ended after {self._num_bytes} of {key.num_bytes} bytes", field="data"
            )
        found = self._digest.digest()
        if found != key.adapter_id:
            raise InvalidRequestError(
                f"adapter_id: the content has the hash {found.hex()}, not {key.adapter_id.hex()}",
                field="adapter_id",
            )
        await self._keeper.run(self._draft.publish, "written")
        self._is_published = True
        self._keeper.enter(key)

    async def close(self) -> None:
        """End it."""
        try:
            if not self._is_published:
                self._keeper.give_back(self._num_bytes)
                await self._keeper.run(self._draft.discard, "removed")
        finally:
            self._on_end()


class BlobReading:
    """Content that is being read.

    Attributes:
        key: Its identity and sizes.
    """

    def __init__(self, keeper: BlobKeeper, key: BlobKey, reader: BlobReader) -> None:
        self.key = key
        self._keeper = keeper
        self._reader = reader
        self._digest = begin_id(key.num_config_bytes)

    async def read(self, num_bytes: int) -> bytes:
        """Return the next bytes, `num_bytes` of them.

        Raises:
            InternalError, UnavailableError: It is damaged, and removed.
        """

        def read() -> bytes:
            data = self._reader.read(num_bytes)
            self._digest.update(data)
            return data

        try:
            data = await self._keeper.run(read, "read")
        except UnavailableError as error:
            await self._keeper.drop_damaged(self.key, error.message)
            raise
        if len(data) < num_bytes:
            await self._refuse("it is shorter than it was")
        return data

    async def verify(self) -> None:
        """Compare the hash, once all was read. Raises InternalError: it is damaged, and removed."""
        if self._digest.digest() != self.key.adapter_id:
            await self._refuse("its hash has changed")

    async def _refuse(self, reason: str) -> None:
        await self._keeper.drop_damaged(self.key, reason)
        raise InternalError(f"adapter {self.key.adapter_id.hex()[:16]} is damaged: {reason}")
