"""Calls of the AdapterService of a frontend."""

import grpc.aio

from pagewire_protos.frontend.v1 import adapters_pb2 as pb
from pagewire_protos.frontend.v1 import adapters_pb2_grpc
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.options import control_channel_options


async def load_adapter(address: str, name: str, path: str) -> None:
    """Let `name` stand for the adapter in the folder `path` of the server's machine.

    Raises:
        PagewireError: The adapter cannot be used, or its folder is not allowed.
    """
    request = pb.LoadRequest(name=name, path=path, load_inplace=True)
    async with grpc.aio.insecure_channel(address, options=control_channel_options()) as channel:
        try:
            await adapters_pb2_grpc.AdapterServiceStub(channel).Load(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
