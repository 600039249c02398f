"""Counts the calls of the public gRPC services by method and status."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import grpc.aio

from pagewire_frontend.metrics.requests import RequestTimer, counted
from pagewire_frontend.request_label import LABEL, PEER, label_in
from pagewire_shared.errors import PagewireError
from pagewire_shared.exhaustion import is_exhausted

_OK = grpc.StatusCode.OK.name
_CANCELLED = grpc.StatusCode.CANCELLED.name


class CallCounter(grpc.aio.ServerInterceptor):
    """Counts calls; sits inside the interceptor that turns errors into statuses. Leaves out health
    checks and reflection, whose streams stay open as long as they are watched."""

    def __init__(self, services: Sequence[str]) -> None:
        """Create the call counter.

        Args:
            services: Full names of the services that are counted.
        """
        self._services = frozenset(services)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of one call."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.split("/")[1] not in self._services:
            return handler
        if handler.request_streaming:
            # The counted services have no such method; its calls would not be counted.
            return handler
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                _counted_stream(handler.unary_stream, method),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            _counted_unary(handler.unary_unary, method),
            handler.request_deserializer,
            handler.response_serializer,
        )


class _Call:
    """One call from its handler's start to the end of the call itself.

    A handler that is cancelled while it writes is only unwound when it is collected, so the call
    ends when the library reports its end.
    """

    def __init__(self, method: str, context: Any) -> None:
        self._exchange = RequestTimer(method, _OK)
        self._count = counted("grpc", self._exchange)
        self._count.__enter__()
        PEER.set(context.peer())
        LABEL.set(label_in(context.invocation_metadata()))
        context.add_done_callback(self._end)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note how the handler ends."""
        try:
            yield
        except PagewireError as error:
            self._exchange.status = error.status_name
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self._exchange.status = _CANCELLED
            raise
        except BaseException as error:
            is_short = is_exhausted(error)
            status = grpc.StatusCode.UNAVAILABLE if is_short else grpc.StatusCode.UNKNOWN
            self._exchange.status = status.name
            raise

    def _end(self, context: Any) -> None:
        if context.cancelled():
            self._exchange.status = _CANCELLED
        self._count.__exit__(None, None, None)


def _counted_unary(inner: Any, method: str) -> Any:
    async def call(request: Any, context: Any) -> Any:
        with _Call(method, context).noting():
            return await inner(request, context)

    return call


def _counted_stream(inner: Any, method: str) -> Any:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        with _Call(method, context).noting():
            async with aclosing(inner(request, context)) as responses:
                async for response in responses:
                    yield response

    return call
