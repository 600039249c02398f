"""The worker's own gRPC server: health, KV blocks for other workers, and adapters."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from pagewire_protos.worker.v1 import adapter_content_pb2_grpc, kv_transfer_pb2
from pagewire_shared.errors import UnavailableError
from pagewire_shared.kv.layers_convert import encode_response
from pagewire_worker.link.adapter_service import ADAPTER_SERVICE_NAME, AdapterContentService
from pagewire_worker.transfer.block_source import BlockSource

SERVICE_NAME: str = kv_transfer_pb2.DESCRIPTOR.services_by_name["KvTransferService"].full_name
SERVICE_NAMES = (SERVICE_NAME, ADAPTER_SERVICE_NAME)

_NOTHING: tuple[Any, ...] = ()
"""Items of the stream, whose responses are written directly: gRPC needs a generator."""


class KvTransferService:
    """Hands out blocks once a source is set.

    Args:
        is_off: Whether blocks always stay here.
    """

    def __init__(self, *, is_off: bool) -> None:
        self._is_off = is_off
        self._source: BlockSource | None = None

    def serve(self, source: BlockSource) -> None:
        """Hand out the blocks of `source` from now on."""
        self._source = source

    async def finish(self, seconds: float) -> None:
        """Refuse new pulls; return when none is open, after `seconds` at the latest."""
        source, self._source = self._source, None
        if source is not None:
            await source.wait_idle(seconds)

    async def Pull(
        self,
        request_iterator: AsyncIterator[kv_transfer_pb2.PullRequest],
        context: "grpc.aio.ServicerContext[Any, Any]",
    ) -> AsyncIterator[Any]:
        """Send the blocks that a receiver asks for. UNIMPLEMENTED if blocks stay here."""
        if self._is_off:
            await context.abort(
                grpc.StatusCode.UNIMPLEMENTED, "this worker does not hand out KV blocks"
            )
        if self._source is None:
            raise UnavailableError("this worker hands out no KV blocks at the moment")
        await self._source.serve(context.read, context.write)
        for response in _NOTHING:
            yield response


def register(
    service: KvTransferService, adapters: AdapterContentService, server: grpc.aio.Server
) -> None:
    """Add the worker's services to `server`."""
    adapter_content_pb2_grpc.add_AdapterContentServiceServicer_to_server(adapters, server)
    decode: Any = kv_transfer_pb2.PullRequest.FromString
    pull = grpc.stream_stream_rpc_method_handler(service.Pull, decode, encode_response)
    handlers = {"Pull": pull}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))
