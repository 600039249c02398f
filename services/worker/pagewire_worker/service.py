"""The worker's own gRPC server: health, and KV transfer, which is refused so far."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from pagewire_protos.worker.v1 import kv_transfer_pb2, kv_transfer_pb2_grpc

SERVICE_NAMES = (kv_transfer_pb2.DESCRIPTOR.services_by_name["KvTransferService"].full_name,)


class KvTransferServicer(kv_transfer_pb2_grpc.KvTransferServiceServicer):
    """Refuses every pull: blocks do not leave the worker yet."""

    async def Pull(
        self,
        request_iterator: AsyncIterator[kv_transfer_pb2.PullRequest],
        context: "grpc.aio.ServicerContext[Any, Any]",
    ) -> AsyncIterator[kv_transfer_pb2.PullResponse]:
        """Answer UNIMPLEMENTED."""
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "this worker does not hand out KV blocks"
        )
        yield kv_transfer_pb2.PullResponse()  # never reached; makes this a stream


def register(server: grpc.aio.Server) -> None:
    """Add the worker's services to `server`."""
    kv_transfer_pb2_grpc.add_KvTransferServiceServicer_to_server(KvTransferServicer(), server)
