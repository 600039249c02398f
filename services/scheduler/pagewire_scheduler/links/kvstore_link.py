"""Watches one KV store: dials it again after every loss, and reports its blocks to the step loop.
The reports are hints: a load finds out whether a block is there."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Protocol

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from pagewire_protos.kvstore.v1 import kv_store_pb2 as pb
from pagewire_protos.kvstore.v1.kv_store_pb2_grpc import KvStoreServiceStub
from pagewire_scheduler.metrics.kv import StoreMeter
from pagewire_scheduler.peers.watch_position import WatchedChange, WatchPosition
from pagewire_shared.convert import protocol_range
from pagewire_shared.errors import DeadlineError, PagewireError, UnavailableError, WireError
from pagewire_shared.identity.ids import ID_BYTES, BlockName
from pagewire_shared.kv.arrays import unpack_names
from pagewire_shared.process.backoff import Backoff
from pagewire_shared.process.cancellation import is_cancelled
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.links import open_channel
from pagewire_shared.rpc.options import Options, control_channel_options
from pagewire_shared.security.roles import LinkRole

HELLO_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 0.25
"""A stream that is open for so long counts as up, even without a message."""
STEADY_SECONDS: Final = 5.0
"""A store that was up for so long is dialled again without delay."""
PING_TIMEOUT_MS: Final = 1000
MAX_BATCH_NAMES: Final = 512
"""Names taken in one turn of the event loop: well below a millisecond."""
MAX_MESSAGE_BYTES: Final = 1024 * 1024
"""Limit of a message, which is parsed in one turn; after a longer one the store is listed anew."""

_NAME_BYTES: Final = 16
_WATCH: Final = "/pagewire.kvstore.v1.KvStoreService/WatchBlocks"
_LOST: Final = (UnavailableError, DeadlineError)
_CHANGES: Final = {change.value: change for change in WatchedChange}
START_SECONDS: Final = 5.0
"""How long a store may be out of reach at the start before that is logged."""

_logger = logging.getLogger(__name__)


class StoreObserver(Protocol):
    """Observer of the blocks of a store; `store` is its address as it was configured."""

    def note_stored(self, store: str, names: Sequence[BlockName]) -> None:
        """Take note of blocks that may be loaded."""

    def note_removed(self, store: str, names: Sequence[BlockName]) -> None:
        """Take note of blocks that are gone."""

    def note_cleared(self, store: str) -> None:
        """Forget all blocks of the store."""

    def set_store(self, store: str, *, is_up: bool) -> None:
        """Take note of whether the store can be reached."""


class KvStoreLink:
    """The watch of one store, dialled again after every loss."""

    def __init__(self, store: str, observer: StoreObserver) -> None:
        """Raises StartupError for an invalid address."""
        self._store = store
        self._target = str(parse_address(store, setting="--kvstore"))
        self._observer = observer
        self._meter = StoreMeter(store)
        self._position = WatchPosition()
        self._is_up = False
        self._reason = ""
        self._quiet_until = 0.0

    async def run(self) -> None:
        """Watch, and watch again after every loss, until cancelled."""
        backoff, clock = Backoff(), asyncio.get_running_loop().time
        self._quiet_until = clock() + START_SECONDS
        while True:
            began_at = clock()
            try:
                await self._watch_once()
            except PagewireError as error:
                # After a contradiction no known name can be trusted: list anew.
                if not isinstance(error, _LOST):
                    self._forget()
                self._note_down(error)
            if clock() - began_at > STEADY_SECONDS:
                backoff.reset()
            await asyncio.sleep(backoff.next_seconds())

    async def _watch_once(self) -> None:
        """Watch until the stream ends, and raise the reason."""
        # A channel per attempt: a kept one would add its own backoff to ours.
        async with open_channel(self._target, LinkRole.KVSTORE, _options()) as channel:
            store_id = await self._introduce(channel)
            sequence = self._position.open(store_id)
            if sequence is None:
                self._clear()
            request = pb.WatchBlocksRequest(from_sequence=sequence, store_id=store_id)
            # Parsed here: the library only logs a malformed message and yields nothing.
            watch: Any = channel.unary_stream(
                _WATCH, request_serializer=pb.WatchBlocksRequest.SerializeToString
            )
            call = watch(request)
            settled = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._note_up)
            try:
                while True:
                    await self._take(await _read(call))
                    self._note_up()
            finally:
                settled.cancel()
                call.cancel()

    async def _introduce(self, channel: grpc.aio.Channel) -> bytes:
        hello = pb.HelloRequest(protocol=protocol_range())
        try:
            answer = await KvStoreServiceStub(channel).Hello(hello, timeout=HELLO_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.CancelledError:
            _raise_if_cancelled_by_peer()
            raise
        if len(answer.store_id) != ID_BYTES:
            raise WireError(f"store_id needs {ID_BYTES} bytes", field="store_id")
        return bytes(answer.store_id)

    async def _take(self, data: bytes) -> None:
        """Take one message. Raises WireError when it contradicts the contract."""
        try:
            message = pb.WatchBlocksResponse.FromString(data)
        except DecodeError as error:
            raise WireError(f"a block event is no message: {error}") from error
        kind = message.WhichOneof("event")
        if kind is None:
            raise WireError("a block event says nothing")
        change = _CHANGES[kind]
        self._position.advance(message.sequence, change)
        if change is WatchedChange.CLEARED:
            self._clear()
        elif change is WatchedChange.STORED:
            await self._take_names(message.stored.names, change)
        else:
            await self._take_names(message.removed.names, change)

    async def _take_names(self, names: bytes, change: WatchedChange) -> None:
        if len(names) % _NAME_BYTES:
            raise WireError(f"names need {_NAME_BYTES} bytes each, got {len(names)}", field="names")
        is_stored = change is WatchedChange.STORED
        note = self._observer.note_stored if is_stored else self._observer.note_removed
        size = MAX_BATCH_NAMES * _NAME_BYTES
        for start in range(0, len(names), size):
            if start:
                await asyncio.sleep(0)  # steps go on between batches
            batch = [BlockName(name) for name in unpack_names(names[start : start + size])]
            note(self._store, batch)
            self._meter.changed(len(batch) if is_stored else -len(batch))

    def _forget(self) -> None:
        self._position.forget()
        self._clear()

    def _clear(self) -> None:
        self._observer.note_cleared(self._store)
        self._meter.cleared()

    def _note_up(self) -> None:
        if not self._is_up:
            self._is_up, self._reason, self._quiet_until = True, "", 0.0
            self._meter.turned(is_up=True)
            self._observer.set_store(self._store, is_up=True)
            _logger.info("watching the KV store at %s", self._store)

    def _note_down(self, error: PagewireError) -> None:
        """Report and log why there is no watch, once per reason; all losses count as one reason."""
        is_lost = isinstance(error, _LOST)
        if is_lost and not self._is_up and asyncio.get_running_loop().time() < self._quiet_until:
            return  # all roles start at once
        reason = "out of reach" if is_lost else error.message
        if self._is_up or reason != self._reason:
            _logger.warning("no watch of the KV store at %s: %s", self._store, error.message)
        self._reason = reason
        if self._is_up:
            self._is_up = False
            self._meter.turned(is_up=False)
            self._observer.set_store(self._store, is_up=False)


def _options() -> Options:
    """Return the options of a control channel that notices a stopped store within two seconds.

    A store is optional, and loads from a stopped one end late. The ping timeout decides, a minute
    by default: the keepalive timeout alone does not end a connection to a stopped process
    (measured with grpcio 1.85).
    """
    changed = {
        "grpc.keepalive_timeout_ms": PING_TIMEOUT_MS,
        "grpc.http2.ping_timeout_ms": PING_TIMEOUT_MS,
        "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
    }
    return list({**dict(control_channel_options()), **changed}.items())


async def _read(call: Any) -> bytes:
    """Return the next message of a stream. Raises the reason when the stream has ended."""
    try:
        message = await call.read()
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    except asyncio.CancelledError:
        _raise_if_cancelled_by_peer()
        raise
    if message is grpc.aio.EOF:
        code = await call.code()
        if code is grpc.StatusCode.OK:
            raise UnavailableError("the store ended its stream")
        raise UnavailableError(await call.details() or f"the stream ended with {code.name}")
    assert isinstance(message, bytes), "a stream yields messages or ends"
    return message


def _raise_if_cancelled_by_peer() -> None:
    # grpc.aio reports a peer's CANCELLED status as the cancellation of the reading task.
    if not is_cancelled():
        raise UnavailableError("the stream was cancelled")
