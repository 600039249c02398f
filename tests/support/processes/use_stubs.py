"""A program, run with the oldest and the newest runtime: imports every stub and makes real calls.

Uses nothing but the stubs, grpcio and protobuf, so that it runs where Pagewire is not installed.
Prints the runtime's versions as its only line.
"""

import asyncio
import importlib
import pkgutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import google.protobuf
import grpc.aio

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "protos" / "gen"))

import pagewire_protos
from pagewire_protos.scheduler.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    worker_attach_pb2,
    worker_attach_pb2_grpc,
)


class Admin(admin_pb2_grpc.AdminServiceServicer):
    async def Audit(
        self,
        request: admin_pb2.AuditRequest,
        context: grpc.aio.ServicerContext[admin_pb2.AuditRequest, admin_pb2.AuditResponse],
    ) -> admin_pb2.AuditResponse:
        assert request.HasField("timeout_ms")
        response = admin_pb2.AuditResponse()
        for _ in range(request.timeout_ms):
            response.reports.add()
        return response


class Attach(worker_attach_pb2_grpc.WorkerAttachServiceServicer):
    async def AttachWorker(
        self,
        request_iterator: AsyncIterator[worker_attach_pb2.AttachWorkerRequest],
        context: grpc.aio.ServicerContext[
            worker_attach_pb2.AttachWorkerRequest, worker_attach_pb2.AttachWorkerResponse
        ],
    ) -> AsyncIterator[worker_attach_pb2.AttachWorkerResponse]:
        async for request in request_iterator:
            assert request.WhichOneof("message") == "hello"
            yield worker_attach_pb2.AttachWorkerResponse()


async def call() -> None:
    server = grpc.aio.server()
    admin_pb2_grpc.add_AdminServiceServicer_to_server(Admin(), server)
    worker_attach_pb2_grpc.add_WorkerAttachServiceServicer_to_server(Attach(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        admin = admin_pb2_grpc.AdminServiceStub(channel)
        response = await admin.Audit(admin_pb2.AuditRequest(timeout_ms=3), timeout=10)
        assert len(response.reports) == 3
        stream = worker_attach_pb2_grpc.WorkerAttachServiceStub(channel).AttachWorker(timeout=10)
        hello = worker_attach_pb2.AttachWorkerRequest(hello=worker_attach_pb2.WorkerHello())
        for _ in range(2):
            await stream.write(hello)
        await stream.done_writing()
        assert len([answer async for answer in stream]) == 2
    await server.stop(None)


def main() -> None:
    for module in pkgutil.walk_packages(pagewire_protos.__path__, "pagewire_protos."):
        importlib.import_module(module.name)
    request = admin_pb2.AuditRequest(timeout_ms=7)
    assert admin_pb2.AuditRequest.FromString(request.SerializeToString()) == request
    asyncio.run(call())
    print(f"grpcio {grpc.__version__} protobuf {google.protobuf.__version__}")


if __name__ == "__main__":
    main()
