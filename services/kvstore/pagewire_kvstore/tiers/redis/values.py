"""Calls to Redis: get, put, find, delete and quarantine block records.

    pagewire:kv:<layout id>:<group>:<name>               a record, see record_codec; all in hex
    pagewire:kv:quarantine:<layout id>:<group>:<name>    a damaged record
    pagewire:kv-probe                                    short-lived; set to test writes

Every call has a deadline and raises TierUnavailableError when it fails. Callers verify records.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ConnectionError as RedisConnectionError,
)
from redis.exceptions import (
    OutOfMemoryError,
    RedisError,
    ResponseError,
)
from redis.exceptions import (
    TimeoutError as RedisTimeoutError,
)

from pagewire_kvstore.blocks.types import BlockKey
from pagewire_kvstore.tiers.errors import TierUnavailableError
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.ids import BlockName

CONNECT_SECONDS = 1.0
CALL_SECONDS = 1.0
"""Deadline of a call; computing a block again is faster than a longer call."""

QUARANTINE_SECONDS = 3600
MAX_CONNECTIONS = 8
PAGE_SIZE = 500
"""Keys asked for at a time."""

_PREFIX = "pagewire:kv:"
_QUARANTINE = "pagewire:kv:quarantine:"
_PROBE = "pagewire:kv-probe"
_KEY = re.compile(rb"pagewire:kv:([0-9a-f]{32}):([0-9a-f]{8}):([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class RedisUsage:
    """Usage of the whole Redis, other applications' keys included.

    Attributes:
        max_bytes: Value of `maxmemory`; 0 for no bound.
    """

    num_keys: int
    used_bytes: int
    max_bytes: int


def value_name(key: BlockKey) -> str:
    """Return the Redis key of a block."""
    return f"{_PREFIX}{_suffix(key)}"


def key_of(name: bytes) -> BlockKey | None:
    """Return the block with that Redis key; None for other keys."""
    match = _KEY.fullmatch(name)
    if match is None:
        return None
    layout_id, group, block_name = (part.decode() for part in match.groups())
    return BlockKey(bytes.fromhex(layout_id), int(group, 16), BlockName(bytes.fromhex(block_name)))


def _suffix(key: BlockKey) -> str:
    return f"{key.layout_id.hex()}:{key.group:08x}:{key.name.hex()}"


class RedisValues:
    """The values of one Redis; used from one event loop.

    Redis serves one call after the other, so calls are kept short: one value at a time, keys by
    the page.
    """

    def __init__(self, url: str, *, call_seconds: float = CALL_SECONDS) -> None:
        """Parse the URL without connecting. Raises StartupError for an invalid URL."""
        self._call_seconds = call_seconds
        try:
            pool = redis.asyncio.ConnectionPool.from_url(
                url,
                max_connections=MAX_CONNECTIONS,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_timeout=call_seconds,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            # The message leaves out the URL, which may contain a password.
            raise StartupError(f"--redis: not the URL of a Redis: {error}") from error
        # Overrides a URL that asks for decoded text.
        pool.connection_kwargs["decode_responses"] = False
        self._redis = redis.asyncio.Redis(connection_pool=pool)
        self._pool = pool
        # Calls beyond the number of connections wait here, within their deadline.
        self._free_connections = asyncio.Semaphore(MAX_CONNECTIONS)

    async def get(self, key: BlockKey, max_bytes: int, ttl_seconds: int) -> bytes | None:
        """Return a value cut to `max_bytes` and renew its time to live; None without a value.

        A value that is not a string is returned as empty bytes.
        """
        name = value_name(key)
        async with self._deadline("get"), self._redis.pipeline(transaction=False) as pipeline:
            pipeline.getrange(name, 0, max_bytes - 1)
            # Shows whether the key exists; an empty answer to GETRANGE does not.
            pipeline.expire(name, ttl_seconds)
            value, is_there = await pipeline.execute(raise_on_error=False)
        with self._errors("get"):
            if isinstance(value, ResponseError) and str(value).startswith("WRONGTYPE"):
                return b""
            if isinstance(value, Exception):
                raise value
            if isinstance(is_there, Exception):
                raise is_there
        return bytes(value) if is_there or value else None

    async def put(
        self, key: BlockKey, header: bytes, payload: bytes | memoryview, ttl_seconds: int
    ) -> None:
        """Set a value that expires after `ttl_seconds`."""
        value = b"".join((header, payload))
        async with self._deadline("put"):
            await self._redis.set(value_name(key), value, ex=ttl_seconds)

    async def exist(self, keys: Sequence[BlockKey]) -> set[BlockKey]:
        """Return the keys that have values."""
        found: set[BlockKey] = set()
        for start in range(0, len(keys), PAGE_SIZE):
            page = keys[start : start + PAGE_SIZE]
            async with self._deadline("exists"), self._redis.pipeline(transaction=False) as calls:
                for key in page:
                    calls.exists(value_name(key))
                answers = await calls.execute()
            found.update(key for key, answer in zip(page, answers, strict=True) if answer)
        return found

    async def quarantine(self, key: BlockKey) -> None:
        """Move a value to quarantine for an hour, for a person to inspect."""
        name = f"{_QUARANTINE}{_suffix(key)}"
        async with self._deadline("quarantine"), self._redis.pipeline(transaction=False) as calls:
            calls.rename(value_name(key), name)
            calls.expire(name, QUARANTINE_SECONDS)
            # The key may have expired, or another store may have moved it.
            await calls.execute(raise_on_error=False)

    async def scan(self) -> AsyncIterator[list[BlockKey]]:
        """Yield the keys of all blocks by the page; a key may come twice."""
        cursor = 0
        while True:
            async with self._deadline("scan"):
                cursor, names = await self._redis.scan(cursor, f"{_PREFIX}*", PAGE_SIZE)
            yield [
                key
                for name in names
                if isinstance(name, bytes) and (key := key_of(name)) is not None
            ]
            if not cursor:
                return

    async def starts(self, keys: Sequence[BlockKey], num_bytes: int) -> list[bytes]:
        """Return the first `num_bytes` of the values of a page of keys; empty for missing keys."""
        async with self._deadline("get"), self._redis.pipeline(transaction=False) as calls:
            for key in keys:
                calls.getrange(value_name(key), 0, num_bytes - 1)
            answers = await calls.execute(raise_on_error=False)
        return [answer if isinstance(answer, bytes) else b"" for answer in answers]

    async def remove(self, keys: Sequence[BlockKey]) -> None:
        """Remove a page of values."""
        if keys:
            async with self._deadline("remove"):
                await self._redis.unlink(*(value_name(key) for key in keys))

    async def usage(self) -> RedisUsage:
        """Return the usage of the whole Redis."""
        async with self._deadline("usage"), self._redis.pipeline(transaction=False) as calls:
            calls.info("memory")
            calls.dbsize()
            memory, num_keys = await calls.execute()
        return RedisUsage(num_keys, int(memory["used_memory"]), int(memory["maxmemory"]))

    async def probe_read(self) -> None:
        """Make a read. Raises TierUnavailableError when reads do not work."""
        async with self._deadline("read"):
            await self._redis.exists(_PROBE)

    async def probe_write(self) -> None:
        """Make a write. Raises TierUnavailableError when writes do not work."""
        async with self._deadline("write"):
            await self._redis.set(_PROBE, b"", ex=10)

    async def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        await self._redis.aclose()
        await self._pool.disconnect()

    @contextlib.asynccontextmanager
    async def _deadline(self, action: str) -> AsyncIterator[None]:
        with self._errors(action):
            async with asyncio.timeout(self._call_seconds), self._free_connections:
                yield

    @contextlib.contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            raise TierUnavailableError(
                f"the redis tier cannot {action}: {str(error) or 'no answer in time'}",
                tier="redis",
                reason=_reason_of(error),
            ) from error


def _reason_of(error: Exception) -> str:
    if isinstance(error, TimeoutError | RedisTimeoutError):
        return "timeout"
    if isinstance(error, OutOfMemoryError):
        return "OOM"
    if isinstance(error, RedisConnectionError | OSError):
        return "connection"
    # Redis' errors begin with a code, such as READONLY or NOPERM; the client maps some to classes.
    return type(error).__name__.removesuffix("Error")
