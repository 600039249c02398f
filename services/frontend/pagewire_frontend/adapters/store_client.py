"""Writes the content of adapters to a KV store, so that workers can read it when this frontend is
gone. No load waits for it, and a store that fails is tried again."""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_protos.kvstore.v1 import adapter_store_pb2 as pb
from pagewire_protos.kvstore.v1.adapter_store_pb2_grpc import AdapterStoreServiceStub
from pagewire_protos.kvstore.v1.kv_store_pb2 import HelloRequest
from pagewire_protos.kvstore.v1.kv_store_pb2_grpc import KvStoreServiceStub
from pagewire_shared.adapters.content_id import CONFIG_NAME, WEIGHTS_NAME
from pagewire_shared.convert import protocol_range
from pagewire_shared.errors import (
    DeadlineError,
    ForbiddenError,
    InvalidRequestError,
    OverloadedError,
    PagewireError,
    UnavailableError,
    WireError,
)
from pagewire_shared.process.backoff import Backoff
from pagewire_shared.process.cancellation import is_cancelled
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.links import open_channel
from pagewire_shared.rpc.options import kv_channel_options
from pagewire_shared.security.roles import LinkRole

_logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 1 << 20
"""Bytes of a piece."""

MAX_WAITING: Final = 16384
"""Adapters that wait to be written; of more, those that came first are left out."""

LOOK_SECONDS: Final = 10.0
"""Time between two looks whether a store has started anew, perhaps empty."""

SEND_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 60.0
"""How long a store may take for a piece, and for an answer: it writes to disk, or waits for another
frontend that writes the same."""

START_SECONDS: Final = 5.0
"""How long a store may be out of reach at the start before that is logged."""

_MAX_BACKOFF_SECONDS: Final = 5.0

WRITTEN, PRESENT, REFUSED, FAILED, LEFT_OUT = "written", "present", "refused", "failed", "left_out"


class AdapterStoreWriter:
    """Writes to one store.

    Args:
        address: Of the store.
        adapters: Those whose content is written; they have a folder with it.
        on_outcome: Called with how each write ended.

    Raises:
        StartupError: The address is invalid.
    """

    def __init__(
        self, address: str, adapters: AdapterRegistry, on_outcome: Callable[[str], None]
    ) -> None:
        assert adapters.store is not None, "adapters are off"
        self._address = parse_address(address, setting="--kvstore")
        self._adapters = adapters
        self._content = adapters.store
        self._on_outcome = on_outcome
        self._waiting: OrderedDict[bytes, None] = OrderedDict()
        self._wake = asyncio.Event()
        self._store_id = b""
        self._fault = ""
        self._quiet_until = 0.0

    def offer(self, adapter_id: bytes) -> None:
        """Write the content of an adapter soon."""
        self._waiting[adapter_id] = None
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popitem(last=False)
            self._on_outcome(LEFT_OUT)
        self._wake.set()

    async def run(self) -> None:
        """Write what is offered, and all of it again to a store that has started anew, until
        cancelled."""
        backoff = Backoff(max_seconds=_MAX_BACKOFF_SECONDS)
        self._quiet_until = asyncio.get_running_loop().time() + START_SECONDS
        while True:
            try:
                async with open_channel(
                    self._address, LinkRole.KVSTORE, kv_channel_options()
                ) as channel:
                    await self._serve(channel, backoff)
            except PagewireError as error:
                self._note_fault(error)
            except Exception:
                # A fault of one write must not end the writing of all.
                _logger.exception("writing adapters to KV store %s failed", self._address)
            await asyncio.sleep(backoff.next_seconds())

    async def _serve(self, channel: grpc.aio.Channel, backoff: Backoff) -> None:
        stub = AdapterStoreServiceStub(channel)
        while True:
            await self._greet(channel)
            while self._waiting:
                adapter_id = next(iter(self._waiting))
                await self._write(stub, adapter_id)
                self._waiting.pop(adapter_id, None)
            backoff.reset()
            if self._fault:
                _logger.warning("KV store %s takes adapters again", self._address)
                self._fault = ""
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()

    async def _greet(self, channel: grpc.aio.Channel) -> None:
        """Offer all adapters to a store that is another one than before."""
        hello = HelloRequest(protocol=protocol_range())
        call: Any = KvStoreServiceStub(channel).Hello(hello, timeout=SEND_SECONDS)
        answer = await _done(call, SEND_SECONDS)
        if answer.store_id != self._store_id:
            self._store_id = answer.store_id
            for adapter_id in self._adapters.ids:
                self.offer(adapter_id)

    async def _write(self, stub: AdapterStoreServiceStub, adapter_id: bytes) -> None:
        """Write one adapter, if its content is still there. Raises PagewireError to try again."""
        if not self._content.pin(adapter_id):
            return
        try:
            folder = self._content.find(adapter_id)
            assert folder is not None, "pinned content is there"
            outcome = await _sent(stub, adapter_id, folder)
        except (InvalidRequestError, ForbiddenError) as error:
            _logger.warning(
                "KV store %s refuses adapter %s: %s", self._address, adapter_id.hex()[:16], error
            )
            outcome = REFUSED
        except PagewireError as error:
            self._on_outcome(FAILED)
            if isinstance(error, OverloadedError) and adapter_id in self._waiting:
                self._waiting.move_to_end(adapter_id)
            raise
        finally:
            self._content.unpin(adapter_id)
        self._on_outcome(outcome)

    def _note_fault(self, error: PagewireError) -> None:
        if self._fault or asyncio.get_running_loop().time() < self._quiet_until:
            return
        self._fault = error.message
        _logger.warning("KV store %s takes no adapters: %s", self._address, error)


async def _sent(stub: AdapterStoreServiceStub, adapter_id: bytes, folder: Path) -> str:
    """Write the files in a folder; return WRITTEN, or PRESENT. Raises PagewireError."""
    paths = [folder / CONFIG_NAME, folder / WEIGHTS_NAME]
    config, weights = await asyncio.to_thread(lambda: [path.stat().st_size for path in paths])
    begin = pb.AdapterBegin(
        adapter_id=adapter_id, num_config_bytes=config, num_weight_bytes=weights
    )
    call: Any = stub.StoreAdapter()
    try:
        await _put(call, pb.StoreAdapterRequest(begin=begin))
        answer = await _done(call.read(), ANSWER_SECONDS)
        is_wanted = answer is not grpc.aio.EOF and answer.HasField("wanted")
        if is_wanted:
            for path in paths:
                await _put_file(call, path)
            await _done(call.done_writing(), SEND_SECONDS)
            answer = await _done(call.read(), ANSWER_SECONDS)
        if answer is grpc.aio.EOF or not answer.HasField("stored"):
            raise WireError("a store ended the stream of an adapter without an answer")
        return WRITTEN if is_wanted else PRESENT
    finally:
        call.cancel()


async def _put_file(call: Any, path: Path) -> None:
    with await asyncio.to_thread(path.open, "rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
            await _put(call, pb.StoreAdapterRequest(data=piece))


async def _put(call: Any, request: pb.StoreAdapterRequest) -> None:
    try:
        await _done(call.write(request), SEND_SECONDS)
    except asyncio.InvalidStateError:
        # The store has ended the call; reading says why.
        await _done(call.read(), SEND_SECONDS)
        raise WireError("a store ended the stream of an adapter") from None


async def _done(step: Any, seconds: float) -> Any:
    """Return what a step of a call gives. Raises PagewireError."""
    try:
        async with asyncio.timeout(seconds):
            return await step
    except TimeoutError as error:
        raise DeadlineError(f"the store did nothing for {seconds:g} s") from error
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
    except asyncio.CancelledError:
        # grpc.aio reports a peer's CANCELLED status as the cancellation of the reading task.
        if is_cancelled():
            raise
        raise UnavailableError("the store cancelled the call") from None
