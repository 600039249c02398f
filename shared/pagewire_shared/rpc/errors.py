"""Errors across gRPC: one mapping from the exception tree to statuses and back."""

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from pagewire_protos.common.v1 import error_pb2
from pagewire_shared.errors import InternalError, InvalidRequestError, PagewireError, error_from
from pagewire_shared.exhaustion import fault_of, is_exhausted

ERROR_METADATA_KEY = "pagewire-error-bin"
"""Trailing metadata key that carries a serialized pagewire.common.v1.ErrorDetail."""

_MAX_MESSAGE_BYTES = 1024
"""Trailers encode a byte in up to three, and clients drop trailers above 8 KiB."""

_logger = logging.getLogger(__name__)


def to_detail(error: PagewireError) -> error_pb2.ErrorDetail:
    """Return the message for `error`."""
    return error_pb2.ErrorDetail(
        field=error.field,
        code=error.code,
        message=error.message,
        retry_after_ms=error.retry_after_ms,
        status=getattr(grpc.StatusCode, error.status_name).value[0],
    )


def from_detail(detail: error_pb2.ErrorDetail) -> PagewireError:
    """Return the exception that `detail` describes."""
    names = [c.name for c in grpc.StatusCode if c.value[0] == detail.status]
    return error_from(
        message=detail.message,
        field=detail.field if detail.HasField("field") else None,
        code=detail.code,
        status_name=names[0] if names else "INTERNAL",
        retry_after_ms=detail.retry_after_ms if detail.HasField("retry_after_ms") else None,
    )


def from_rpc_error(error: grpc.RpcError) -> PagewireError:
    """Return the exception of a failed call, from its typed detail or else its status."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return InternalError(str(error))
    metadata = error.trailing_metadata()
    for key, value in metadata or ():
        if key == ERROR_METADATA_KEY and isinstance(value, bytes):
            return from_detail(error_pb2.ErrorDetail.FromString(value))
    return error_from(
        message=error.details() or error.code().name,
        field=None,
        code=error.code().name.lower(),
        status_name=error.code().name,
        retry_after_ms=None,
    )


async def abort(context: "grpc.aio.ServicerContext[Any, Any]", error: PagewireError) -> NoReturn:
    """End the call with the status of `error` and its typed detail."""
    detail = to_detail(error)
    detail.message = _shortened(error.message)
    trailer = (ERROR_METADATA_KEY, detail.SerializeToString())
    context.set_trailing_metadata((trailer,))
    await context.abort(getattr(grpc.StatusCode, error.status_name), detail.message)
    raise AssertionError("abort returned")


async def _abort_short(context: "grpc.aio.ServicerContext[Any, Any]", error: Exception) -> None:
    """End the call where the process is out of resources; raise any other error again."""
    if not is_exhausted(error):
        raise error
    failure = fault_of(error, "")
    _logger.error("a call is refused: %s", failure)
    await abort(context, failure)


def _shortened(message: str) -> str:
    """Return a message cut to fit into a trailer; it may quote a client at length."""
    data = message.encode(errors="replace")
    if len(data) <= _MAX_MESSAGE_BYTES:
        return message
    return data[:_MAX_MESSAGE_BYTES].decode(errors="ignore") + "..."


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns exceptions of the tree into statuses, and a lack of descriptors or memory into
    UNAVAILABLE with a log line. The library logs any other, and answers UNKNOWN."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of one call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        decode = handler.request_deserializer
        if handler.response_streaming:
            inner = handler.stream_stream if handler.request_streaming else handler.unary_stream
            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
            wrapped: Any = _wrap_stream(inner, decode)
        else:
            inner = handler.stream_unary if handler.request_streaming else handler.unary_unary
            make = (
                grpc.stream_unary_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler
            )
            wrapped = _wrap_unary(inner, decode)
        if handler.request_streaming:
            return make(wrapped, decode, handler.response_serializer)
        # Decoded here, because the library answers invalid bytes with INTERNAL.
        return make(wrapped, None, handler.response_serializer)


def _decoded(request: Any, decode: Callable[[bytes], Any] | None) -> Any:
    """Return the decoded message of a request; a stream of requests is returned as it is."""
    if decode is None or not isinstance(request, bytes):
        return request
    try:
        return decode(request)
    except DecodeError as error:
        raise no_message(error) from error


def no_message(error: DecodeError) -> InvalidRequestError:
    """Return the error of a caller whose bytes are no message of the method."""
    return InvalidRequestError(
        f"the request is no message of this method: {error}", code="invalid_type"
    )


def _wrap_unary(inner: Any, decode: Callable[[bytes], Any] | None) -> Any:
    async def call(request: Any, context: Any) -> Any:
        try:
            return await inner(_decoded(request, decode), context)
        except PagewireError as error:
            await abort(context, error)
        except DecodeError as error:  # of a later message of a stream
            await abort(context, no_message(error))
        except Exception as error:  # noqa: BLE001 - raised again if it is a fault
            await _abort_short(context, error)

    return call


def _wrap_stream(inner: Any, decode: Callable[[bytes], Any] | None) -> Any:
    if inspect.iscoroutinefunction(inner):
        return _wrap_unary(inner, decode)  # writes its own responses, like the health service

    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            # Closed here and not when it is collected: its own clean-up belongs to this call.
            async with aclosing(inner(_decoded(request, decode), context)) as responses:
                async for response in responses:
                    yield response
        except PagewireError as error:
            await abort(context, error)
        except DecodeError as error:  # of a later message of a stream
            await abort(context, no_message(error))
        except Exception as error:  # noqa: BLE001 - raised again if it is a fault
            await _abort_short(context, error)

    return call
