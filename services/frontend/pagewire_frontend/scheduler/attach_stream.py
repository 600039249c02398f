"""The transport of one attach stream: dial, hello, welcome, then messages both ways until it ends.
Handles gRPC, heartbeats and silence; knows no request."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_protos.scheduler.v1.frontend_attach_pb2_grpc import FrontendAttachServiceStub
from pagewire_shared.errors import PagewireError, PeerRefusedError, UnavailableError, WireError
from pagewire_shared.process.cancellation import is_cancelled
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.links import open_channel
from pagewire_shared.rpc.options import control_channel_options
from pagewire_shared.rpc.send_queue import SendQueue
from pagewire_shared.security.roles import LinkRole

HEARTBEAT_SECONDS = 1.0
WELCOME_SECONDS = 10.0
STALL_SECONDS = 10.0
"""A scheduler that takes none of the waiting messages for this long is dialled again."""


class AttachStream:
    """A dialled stream; made by `dial`."""

    def __init__(self, call: Any, *, silence_seconds: float) -> None:
        self._call = call
        self._silence_seconds = silence_seconds
        # Nothing is refused here: SubmitQueue bounds new requests. Other messages are small, and
        # their number is bounded by the open requests and the time of a stall.
        self._outbox: SendQueue[pb.AttachFrontendRequest] = SendQueue(max_bytes=0)
        self._last_heard = time.monotonic()

    async def introduce(self, hello: pb.AttachFrontendRequest) -> pb.Welcome:
        """Send the hello and return the welcome. Raises PeerRefusedError or UnavailableError."""
        try:
            async with asyncio.timeout(WELCOME_SECONDS):
                await self._write(hello)
                first = await self._read()
        except TimeoutError as error:
            raise UnavailableError(f"no welcome within {WELCOME_SECONDS:.0f} s") from error
        if first.WhichOneof("message") != "welcome":
            raise WireError("the first message of a scheduler is no welcome")
        return first.welcome

    def send(self, message: pb.AttachFrontendRequest) -> None:
        """Queue a message. Raises InternalError above the size limit of a message."""
        self._outbox.put(message)

    def send_each(self, messages: Iterator[pb.AttachFrontendRequest]) -> None:
        """Queue messages that are made when they are written."""
        self._outbox.put_each(messages)

    async def exchange(self, on_message: Callable[[pb.AttachFrontendResponse], None]) -> None:
        """Pass messages both ways until the stream ends; then raise why it ended."""
        tasks = [
            asyncio.create_task(self._read_loop(on_message)),
            asyncio.create_task(self._write_loop()),
            asyncio.create_task(self._watch_loop()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._call.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_loop(self, on_message: Callable[[pb.AttachFrontendResponse], None]) -> None:
        while True:
            message = await self._read()
            self._last_heard = time.monotonic()
            on_message(message)

    async def _write_loop(self) -> None:
        async for message in self._outbox.drain():
            await self._write(message)

    async def _watch_loop(self) -> None:
        counter, was_stalled = 0, False
        self._last_heard = time.monotonic()
        while True:
            counter += 1
            self.send(pb.AttachFrontendRequest(heartbeat=pb.Heartbeat(counter=counter)))
            await asyncio.sleep(HEARTBEAT_SECONDS)
            silence = time.monotonic() - self._last_heard
            if silence > self._silence_seconds:
                raise UnavailableError(f"silent for {silence:.1f} s")
            # Checked twice: after a pause of this process the writer runs between the checks.
            is_stalled = (stall := self._outbox.stalled_seconds) > STALL_SECONDS
            if is_stalled and was_stalled:
                raise UnavailableError(f"it has taken nothing for {stall:.1f} s")
            was_stalled = is_stalled

    async def _write(self, message: pb.AttachFrontendRequest) -> None:
        try:
            await self._call.write(message)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.InvalidStateError as error:
            raise await self._end() from error
        except asyncio.CancelledError:
            await self._raise_if_cancelled_by_peer()
            raise

    async def _read(self) -> pb.AttachFrontendResponse:
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.CancelledError:
            await self._raise_if_cancelled_by_peer()
            raise
        if message is grpc.aio.EOF:
            raise await self._end()
        assert isinstance(message, pb.AttachFrontendResponse), "a stream yields messages or ends"
        return message

    async def _raise_if_cancelled_by_peer(self) -> None:
        # grpc.aio reports a peer's CANCELLED status as the cancellation of the reading task.
        if not is_cancelled():
            raise UnavailableError("the stream was cancelled")

    async def _end(self) -> PagewireError:
        """Return the error of the ended call; a peer that closes the stream is as gone as one that
        breaks it."""
        code, details = await self._call.code(), await self._call.details()
        if code is grpc.StatusCode.FAILED_PRECONDITION:
            return PeerRefusedError(details or code.name)
        return UnavailableError(details or f"the stream ended with {code.name}")


@asynccontextmanager
async def dial(address: Address, *, silence_seconds: float) -> AsyncIterator[AttachStream]:
    """Open a stream to the scheduler at `address`; it is cancelled on leaving."""
    # A channel per attempt: a channel that stays would add its own backoff to ours.
    async with open_channel(address, LinkRole.SCHEDULER, control_channel_options()) as channel:
        call = FrontendAttachServiceStub(channel).AttachFrontend()
        try:
            yield AttachStream(call, silence_seconds=silence_seconds)
        finally:
            call.cancel()
