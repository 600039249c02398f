"""A scheduler of a few lines for tests of the worker: real gRPC, plans made by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_protos.scheduler.v1 import worker_attach_pb2_grpc
from pagewire_shared import PROTOCOL_MAX
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.options import server_options


class WorkerStream:
    """One attached worker as the scheduler sees it."""

    def __init__(self) -> None:
        self.received: asyncio.Queue = asyncio.Queue()
        self.to_send: asyncio.Queue = asyncio.Queue()
        self.num_progress = 0
        self.is_over = False

    async def next(self, kind: str, timeout: float = 20) -> object:
        """Return the next message of `kind`; progress reports are skipped."""
        while True:
            message = await asyncio.wait_for(self.received.get(), timeout)
            found = message.WhichOneof("message")
            if found == "progress" and kind != "progress":
                continue
            assert found == kind, f"got {found}, waited for {kind}"
            return getattr(message, found)

    def send(self, **fields: object) -> None:
        """Send one message to the worker."""
        self.to_send.put_nowait(wire.AttachWorkerResponse(**fields))

    def end(self) -> None:
        """End the stream."""
        self.to_send.put_nowait(None)


class FakeScheduler(worker_attach_pb2_grpc.WorkerAttachServiceServicer):
    """Hands every attach to the test; `refusal` refuses them with FAILED_PRECONDITION."""

    def __init__(self) -> None:
        self.attaches: asyncio.Queue[WorkerStream] = asyncio.Queue()
        self.refusal: str | None = None

    async def AttachWorker(
        self,
        request_iterator: AsyncIterator[wire.AttachWorkerRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[wire.AttachWorkerResponse]:
        """Serve one stream until the test ends it."""
        if self.refusal is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refusal)
        stream = WorkerStream()

        async def read() -> None:
            async for message in request_iterator:
                stream.received.put_nowait(message)

        reader = asyncio.create_task(read())
        self.attaches.put_nowait(stream)
        try:
            while (message := await stream.to_send.get()) is not None:
                yield message
        finally:
            stream.is_over = True
            reader.cancel()

    async def attach(
        self,
        generation: int = 7,
        timeout: float = 60,
        cell: str = "",
        stores: tuple[str, ...] = (),
    ) -> tuple[WorkerStream, object]:
        """Wait for a worker, welcome it and return its stream and hello."""
        stream = await asyncio.wait_for(self.attaches.get(), timeout)
        hello = await stream.next("hello")
        welcome = wire.WorkerWelcome(protocol=PROTOCOL_MAX, generation=generation, cell=cell)
        welcome.kvstore_addresses.extend(stores)
        stream.send(welcome=welcome)
        return stream, hello


@asynccontextmanager
async def listening(scheduler: FakeScheduler, address: Address) -> AsyncIterator[None]:
    """Serve `scheduler` on `address`."""
    server = grpc.aio.server(options=server_options())
    worker_attach_pb2_grpc.add_WorkerAttachServiceServicer_to_server(scheduler, server)
    server.add_insecure_port(str(address))
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)
