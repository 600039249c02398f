"""A worker that hands out blocks as a test says, over real gRPC, with standard messages."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_protos.worker.v1 import kv_transfer_pb2_grpc
from pagewire_shared.kv.layers_convert import LayerRange, layers_checksum
from pagewire_shared.rpc.options import kv_server_options


def layers_message(
    names: Sequence[bytes], covered: tuple[int, int, int, int], data: bytes, **fields: Any
) -> wire.PullResponse:
    """Return layers of blocks as protobuf itself encodes them; `names` are all that were asked."""
    first, count = covered[:2]
    checksum = layers_checksum(names[first : first + count], LayerRange(*covered), [data])
    numbers = dict(
        zip(("first_block", "num_blocks", "first_layer", "num_layers"), covered, strict=True)
    )
    layers = wire.KvLayers(**{**numbers, "checksum": checksum, "data": data, **fields})
    return wire.PullResponse(layers=layers)


@dataclass
class FakeHolder(kv_transfer_pb2_grpc.KvTransferServiceServicer):
    """Answers every pull with the same messages, and then waits or ends."""

    messages: Sequence[wire.PullResponse] = ()
    accepted: wire.PullAccepted = field(default_factory=lambda: wire.PullAccepted(protocol=1))
    does_wait: bool = True
    opens: list[wire.PullOpen] = field(default_factory=list)

    async def Pull(
        self, request_iterator: AsyncIterator[wire.PullRequest], context: Any
    ) -> AsyncIterator[wire.PullResponse]:
        first = await context.read()
        self.opens.append(first.open)
        yield wire.PullResponse(accepted=self.accepted)
        for message in self.messages:
            yield message
        if self.does_wait:
            await asyncio.Event().wait()


@asynccontextmanager
async def holding(holder: FakeHolder, address: str) -> AsyncIterator[None]:
    """Serve `holder` at `address`."""
    server = grpc.aio.server(options=kv_server_options())
    kv_transfer_pb2_grpc.add_KvTransferServiceServicer_to_server(holder, server)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(0.0)
