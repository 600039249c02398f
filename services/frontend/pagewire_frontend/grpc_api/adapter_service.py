"""The gRPC service for adapters. `key_interceptor` checks before that the key has the scope
`adapters`."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from pagewire_frontend.access.admin_log import noted
from pagewire_frontend.adapters.calls import AdapterCalls
from pagewire_frontend.adapters.registry import NamedAdapter
from pagewire_protos.frontend.v1 import adapters_pb2 as pb
from pagewire_protos.frontend.v1 import adapters_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class AdapterService(adapters_pb2_grpc.AdapterServiceServicer):
    """Adapters by name."""

    def __init__(self, calls: AdapterCalls) -> None:
        self._calls = calls

    async def Load(self, request: pb.LoadRequest, context: Context) -> pb.LoadResponse:
        """Load an adapter under a name."""
        with noted("LoadAdapter", request):
            adapter = await self._calls.load(
                request.name,
                request.path,
                base_model=request.base_model,
                is_in_place=request.load_inplace,
            )
            return pb.LoadResponse(adapter=_message(adapter))

    async def Unload(self, request: pb.UnloadRequest, context: Context) -> pb.UnloadResponse:
        """Forget a name."""
        with noted("UnloadAdapter", request):
            await self._calls.unload(request.name)
            return pb.UnloadResponse()

    async def List(self, request: pb.ListRequest, context: Context) -> pb.ListResponse:
        """Return all adapters."""
        return pb.ListResponse(adapters=self._all())

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WatchResponse]:
        """Return all adapters, now and after every change."""
        adapters = self._calls.adapters
        while True:
            version = adapters.version
            yield pb.WatchResponse(adapters=self._all())
            await adapters.wait_changed(version)

    def _all(self) -> list[pb.Adapter]:
        return [_message(adapter) for adapter in self._calls.adapters]


def _message(adapter: NamedAdapter) -> pb.Adapter:
    return pb.Adapter(
        name=adapter.name,
        adapter_id=adapter.use.adapter_id,
        base_model=adapter.base_model,
        path=adapter.path,
        rank=adapter.rank,
        targets=adapter.targets,
        num_bytes=adapter.num_bytes,
        loaded_at=adapter.loaded_at,
    )
