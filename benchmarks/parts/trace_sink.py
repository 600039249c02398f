"""An OTLP receiver that drops what it gets."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc


@contextlib.contextmanager
def trace_sink() -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield the endpoint of the receiver, and its count of batches."""
    batches = []

    def drop(request: bytes, context: grpc.ServicerContext) -> bytes:
        batches.append(len(request))
        return b""

    name = "opentelemetry.proto.collector.trace.v1.TraceService"
    handler = grpc.method_handlers_generic_handler(
        name, {"Export": grpc.unary_unary_rpc_method_handler(drop)}
    )
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", lambda: len(batches)
    finally:
        server.stop(None)
