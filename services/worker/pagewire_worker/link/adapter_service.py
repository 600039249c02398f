"""Hands out the content of adapters that are in the worker's memory."""

from collections.abc import AsyncIterator
from typing import Any, Final

import grpc.aio

from pagewire_protos.worker.v1 import adapter_content_pb2 as wire
from pagewire_protos.worker.v1 import adapter_content_pb2_grpc
from pagewire_shared.adapters.content_id import CONFIG_NAME, WEIGHTS_NAME
from pagewire_shared.errors import ModelNotFoundError
from pagewire_worker.adapters.loader import AdapterLoader

ADAPTER_SERVICE_NAME: str = wire.DESCRIPTOR.services_by_name["AdapterContentService"].full_name

_CHUNK: Final = 1 << 20


class AdapterContentService(adapter_content_pb2_grpc.AdapterContentServiceServicer):
    """Hands out contents once a loader is set."""

    def __init__(self) -> None:
        self._loader: AdapterLoader | None = None

    def serve(self, loader: AdapterLoader | None) -> None:
        """Hand out what `loader` has in memory from now on; nothing for None."""
        self._loader = loader

    async def FetchAdapter(
        self,
        request: wire.FetchAdapterRequest,
        context: "grpc.aio.ServicerContext[Any, Any]",
    ) -> AsyncIterator[wire.FetchAdapterResponse]:
        """Send the files of one adapter. NOT_FOUND when it is not in memory."""
        loader = self._loader
        content = None if loader is None else loader.content(request.adapter_id)
        if content is None:
            raise ModelNotFoundError(
                f"adapter {request.adapter_id.hex()[:16]} is not here",
                field="adapter_id",
                code="adapter_not_found",
            )
        for name, data in ((CONFIG_NAME, content.config), (WEIGHTS_NAME, content.weights)):
            file = wire.AdapterFile(name=name, num_bytes=len(data))
            yield wire.FetchAdapterResponse(file=file)
            for begin in range(0, len(data), _CHUNK):
                yield wire.FetchAdapterResponse(data=data[begin : begin + _CHUNK])
