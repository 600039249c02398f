"""`python -m pagewire_kvstore`: the life of the KV store's process. Holds no blocks itself."""

import sys

import grpc.aio

from pagewire_kvstore.config import KvStoreConfig
from pagewire_kvstore.service import SERVICE_NAME, KvStoreService
from pagewire_protos.kvstore.v1 import kv_store_pb2_grpc
from pagewire_shared.process import ProcessContext, run_role
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.server import start_server

STOP_GRACE_SECONDS = 0.5


async def serve(config: KvStoreConfig, context: ProcessContext) -> None:
    """Serve on `config.listen` until told to stop. Raises StartupError when it is taken."""
    service = KvStoreService()

    def register(server: grpc.aio.Server) -> None:
        kv_store_pb2_grpc.add_KvStoreServiceServicer_to_server(service, server)

    address = parse_address(config.listen, setting="--listen")
    server = await start_server(address, register, [SERVICE_NAME], setting="--listen")
    context.status.report("listening", address=str(server.address))
    await server.set_serving(True)
    context.status.report("ready")
    await context.stop.wait()
    context.status.report("stopping")
    await server.stop(STOP_GRACE_SECONDS)


if __name__ == "__main__":
    sys.exit(
        run_role(
            "kvstore",
            KvStoreConfig,
            serve,
            description="Content-addressed KV blocks that outlive the workers that computed them.",
        )
    )
