"""Serves the content of this frontend's adapters to workers on other hosts, on a private
address."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import grpc.aio

from pagewire_frontend.adapters.store import ContentFolder
from pagewire_protos.worker.v1 import adapter_content_pb2 as pb
from pagewire_protos.worker.v1 import adapter_content_pb2_grpc
from pagewire_shared.adapters.content_id import ADAPTER_ID_BYTES, CONFIG_NAME, WEIGHTS_NAME
from pagewire_shared.errors import InvalidRequestError, ModelNotFoundError, OverloadedError
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.server import start_server

SERVICE_NAMES = (pb.DESCRIPTOR.services_by_name["AdapterContentService"].full_name,)

PIECE_BYTES: Final = 1 << 20
"""Bytes of a piece."""

MAX_CALLS: Final = 32
"""Adapters that are sent at once."""

Context = grpc.aio.ServicerContext[Any, Any]


class ContentService(adapter_content_pb2_grpc.AdapterContentServiceServicer):
    """The files of adapters by identity."""

    def __init__(self, store: ContentFolder) -> None:
        self._store = store
        self._num_calls = 0

    async def FetchAdapter(
        self, request: pb.FetchAdapterRequest, context: Context
    ) -> AsyncIterator[pb.FetchAdapterResponse]:
        """Send both files of an adapter, which stays while they are sent."""
        adapter_id = request.adapter_id
        if len(adapter_id) != ADAPTER_ID_BYTES:
            raise InvalidRequestError(
                f"adapter_id has {ADAPTER_ID_BYTES} bytes", field="adapter_id"
            )
        if self._num_calls >= MAX_CALLS:
            raise OverloadedError("too many adapters are being sent")
        if not self._store.pin(adapter_id):
            raise ModelNotFoundError("this frontend does not have the adapter", field="adapter_id")
        self._num_calls += 1
        try:
            folder = self._store.find(adapter_id)
            assert folder is not None, "pinned content is there"
            for name in (CONFIG_NAME, WEIGHTS_NAME):
                async for message in _file(folder / name):
                    yield message
        finally:
            self._num_calls -= 1
            self._store.unpin(adapter_id)


async def _file(path: Path) -> AsyncIterator[pb.FetchAdapterResponse]:
    with await asyncio.to_thread(path.open, "rb") as file:
        num_bytes = os.fstat(file.fileno()).st_size
        begin = pb.AdapterFile(name=path.name, num_bytes=num_bytes)
        yield pb.FetchAdapterResponse(file=begin)
        while piece := await asyncio.to_thread(_read, file):
            yield pb.FetchAdapterResponse(data=piece)


def _read(file: BinaryIO) -> bytes:
    return file.read(PIECE_BYTES)


@contextlib.asynccontextmanager
async def served(store: ContentFolder | None, listen: Address | None) -> AsyncIterator[None]:
    """Serve the content while inside, where there is an address. Raises StartupError."""
    if store is None or listen is None:
        yield
        return
    service = ContentService(store)
    server = await start_server(
        listen,
        lambda server: adapter_content_pb2_grpc.add_AdapterContentServiceServicer_to_server(
            service, server
        ),
        SERVICE_NAMES,
        setting="--lora-listen",
    )
    await server.set_serving(True)
    try:
        yield
    finally:
        await server.stop(0.0)
