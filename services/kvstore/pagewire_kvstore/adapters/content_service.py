"""The gRPC services of adapters: frontends write their content, and workers read it."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import grpc.aio

from pagewire_kvstore.adapters.blob_keeper import BlobKeeper, BlobUpload
from pagewire_kvstore.adapters.blob_medium import BlobKey
from pagewire_kvstore.adapters.metrics import FOUND, READS
from pagewire_kvstore.streams.limits import StoreStreamLimits
from pagewire_kvstore.streams.open_streams import OpenStreams
from pagewire_kvstore.streams.put_stream import Read, read_request
from pagewire_protos.kvstore.v1 import adapter_store_pb2, adapter_store_pb2_grpc
from pagewire_protos.worker.v1 import adapter_content_pb2, adapter_content_pb2_grpc
from pagewire_shared.adapters.adapter_config import MAX_CONFIG_BYTES
from pagewire_shared.adapters.content_id import ADAPTER_ID_BYTES, CONFIG_NAME, WEIGHTS_NAME
from pagewire_shared.adapters.tensor_header import MAX_WEIGHT_BYTES
from pagewire_shared.errors import InvalidRequestError

SERVICE_NAMES: Final = tuple(
    proto.DESCRIPTOR.services_by_name[name].full_name
    for proto, name in (
        (adapter_store_pb2, "AdapterStoreService"),
        (adapter_content_pb2, "AdapterContentService"),
    )
)

PIECE_BYTES: Final = 1 << 20
"""Most bytes of a piece."""

_NOTHING: tuple[Any, ...] = ()
"""Makes a method a generator, as gRPC requires; OpenStreams.send has sent its responses."""

Context = grpc.aio.ServicerContext[Any, Any]


class AdapterBlobService(
    adapter_store_pb2_grpc.AdapterStoreServiceServicer,
    adapter_content_pb2_grpc.AdapterContentServiceServicer,
):
    """Serves the content of one keeper."""

    def __init__(self, keeper: BlobKeeper, limits: StoreStreamLimits) -> None:
        self._keeper = keeper
        self._stall_seconds = limits.stall_seconds
        self._puts = OpenStreams("adapter_put", limits.max_adapter_puts, limits.stall_seconds)
        self._gets = OpenStreams("adapter_get", limits.max_adapter_gets, limits.stall_seconds)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve both services."""
        adapter_store_pb2_grpc.add_AdapterStoreServiceServicer_to_server(self, server)
        adapter_content_pb2_grpc.add_AdapterContentServiceServicer_to_server(self, server)

    async def StoreAdapter(
        self, request_iterator: AsyncIterator[Any], context: Context
    ) -> AsyncIterator[adapter_store_pb2.StoreAdapterResponse]:
        """Take an adapter. Any error ends the stream, and leaves nothing of it."""
        with self._puts.opened():
            await self._puts.send(self._store(context.read), context)
        for response in _NOTHING:
            yield response

    async def FetchAdapter(
        self, request: adapter_content_pb2.FetchAdapterRequest, context: Context
    ) -> AsyncIterator[adapter_content_pb2.FetchAdapterResponse]:
        """Send both files of an adapter. Raises ModelNotFoundError."""
        check_id(request.adapter_id)
        with self._gets.opened():
            await self._gets.send(self._files(request.adapter_id), context)
        for response in _NOTHING:
            yield response

    async def _store(
        self, read: Read
    ) -> AsyncGenerator[adapter_store_pb2.StoreAdapterResponse, None]:
        key = key_of(await read_request(read, self._stall_seconds))
        upload = await self._keeper.begin(key)
        if upload is not None:
            try:
                wanted = adapter_store_pb2.AdapterWanted()
                yield adapter_store_pb2.StoreAdapterResponse(wanted=wanted)
                await self._take(upload, read)
                await upload.publish()
            finally:
                await upload.close()
        stored = adapter_store_pb2.AdapterStored(was_there=upload is None)
        yield adapter_store_pb2.StoreAdapterResponse(stored=stored)

    async def _take(self, upload: BlobUpload, read: Read) -> None:
        while (request := await read_request(read, self._stall_seconds)) is not None:
            if request.WhichOneof("part") != "data":
                raise InvalidRequestError("begin: the adapter has begun already", field="begin")
            if not 0 < len(request.data) <= PIECE_BYTES:
                raise InvalidRequestError(
                    f"data: {len(request.data)} bytes, not 1 to {PIECE_BYTES}", field="data"
                )
            await upload.take(request.data)

    async def _files(
        self, adapter_id: bytes
    ) -> AsyncGenerator[adapter_content_pb2.FetchAdapterResponse, None]:
        response = adapter_content_pb2.FetchAdapterResponse
        async with self._keeper.reading(adapter_id) as reading:
            key = reading.key
            sizes = {CONFIG_NAME: key.num_config_bytes, WEIGHTS_NAME: key.num_weight_bytes}
            for name, num_bytes in sizes.items():
                file = adapter_content_pb2.AdapterFile(name=name, num_bytes=num_bytes)
                yield response(file=file)
                for begin in range(0, num_bytes, PIECE_BYTES):
                    yield response(data=await reading.read(min(PIECE_BYTES, num_bytes - begin)))
            await reading.verify()
            READS.labels(FOUND).inc()


def check_id(adapter_id: bytes) -> None:
    """Raise InvalidRequestError for bytes that are no identity."""
    if len(adapter_id) != ADAPTER_ID_BYTES:
        raise InvalidRequestError(f"adapter_id has {ADAPTER_ID_BYTES} bytes", field="adapter_id")


def key_of(request: adapter_store_pb2.StoreAdapterRequest | None) -> BlobKey:
    """Return what the first message of a stream announces. Raises InvalidRequestError."""
    if request is None or request.WhichOneof("part") != "begin":
        raise InvalidRequestError("begin: a stream starts with it", field="begin")
    begin = request.begin
    check_id(begin.adapter_id)
    bounds = {"num_config_bytes": MAX_CONFIG_BYTES, "num_weight_bytes": MAX_WEIGHT_BYTES}
    for name, most in bounds.items():
        if not 0 < getattr(begin, name) <= most:
            raise InvalidRequestError(
                f"{name}: {getattr(begin, name)} bytes, not 1 to {most}", field=name
            )
    return BlobKey(begin.adapter_id, begin.num_config_bytes, begin.num_weight_bytes)
