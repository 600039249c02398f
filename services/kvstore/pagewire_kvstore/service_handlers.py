"""Registers the service: streams that carry chunks with their own serializers, all else as
generated."""

from typing import Any

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.kv import streams as kv_streams

_SERVICE = kv_store_pb2.DESCRIPTOR.services_by_name["KvStoreService"]

SERVICE_NAME: str = _SERVICE.full_name


def add_service(service: Any, server: grpc.aio.Server) -> None:
    """Serve every method of KvStoreService with the method of that name of `service`."""
    handlers = {method.name: _handler(service, method) for method in _SERVICE.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))


def _handler(service: Any, method: Any) -> "grpc.RpcMethodHandler[Any, Any]":
    call = getattr(service, method.name)
    request: Any = GetMessageClass(method.input_type)
    response: Any = GetMessageClass(method.output_type)
    decode, encode = request.FromString, response.SerializeToString
    if method.client_streaming:
        if "chunk" in request.DESCRIPTOR.fields_by_name:
            decode = kv_streams.deserializer(request)
        if "chunk" in response.DESCRIPTOR.fields_by_name:
            encode = kv_streams.serializer(response)
        return grpc.stream_stream_rpc_method_handler(call, decode, encode)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(call, decode, encode)
    return grpc.unary_unary_rpc_method_handler(call, decode, encode)
