"""A scripted public API on a real socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from pagewire_shared.rpc.errors import ErrorInterceptor
from pagewire_shared.rpc.options import server_options


@asynccontextmanager
async def serving(
    servicer: inference_pb2_grpc.InferenceServiceServicer, path: Path
) -> AsyncIterator[None]:
    """Serve `servicer` on the socket `path`, with errors as the frontend puts them."""
    server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=server_options())
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)
