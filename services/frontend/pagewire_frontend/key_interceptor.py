"""The check of API keys in front of every gRPC method but health and reflection."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from pagewire_frontend.api_keys import ApiKeys, set_tenant
from pagewire_shared.errors import AuthenticationError

_OPEN_SERVICES = ("/grpc.health.", "/grpc.reflection.")
_METADATA_KEY = "authorization"


class KeyInterceptor(grpc.aio.ServerInterceptor):
    """Ends calls without a valid key with UNAUTHENTICATED; stands behind the ErrorInterceptor."""

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Check one call before its first message is read."""
        details: Any = handler_call_details
        handler = await continuation(handler_call_details)
        if handler is None or details.method.startswith(_OPEN_SERVICES):
            return handler
        metadata = dict(details.invocation_metadata or ())
        try:
            # The call's handler runs in this task.
            set_tenant(self._keys.check(metadata.get(_METADATA_KEY)))
        except AuthenticationError as error:
            return _refusing(handler, error)
        return handler


def _refusing(handler: Any, error: AuthenticationError) -> Any:
    """Return a handler of the same shape that raises `error`, for the ErrorInterceptor to turn
    into a status."""

    async def refuse(request: Any, context: Any) -> Any:
        raise error

    async def refuse_stream(request: Any, context: Any) -> AsyncIterator[Any]:
        raise error
        yield

    kind = ("stream_" if handler.request_streaming else "unary_") + (
        "stream" if handler.response_streaming else "unary"
    )
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    inner = refuse_stream if handler.response_streaming else refuse
    return make(inner, handler.request_deserializer, handler.response_serializer)
