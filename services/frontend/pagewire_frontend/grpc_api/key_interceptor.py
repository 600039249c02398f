"""Checks API keys in front of every gRPC method but health and reflection: that the key is valid,
may call the method, and is within its limits."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from pagewire_frontend.access.admin_log import note_call, note_refusal
from pagewire_frontend.access.api_keys import ApiKeys, Caller, set_caller
from pagewire_frontend.access.scopes import OPEN_SERVICES, OPERATING, scope_of_method
from pagewire_shared.errors import ForbiddenError, PagewireError

_INFERENCE = "/pagewire.frontend.v1.InferenceService/"
_BATCHES = "/pagewire.frontend.v1.BatchService/"
_FREE_METHODS = (f"{_INFERENCE}ListModels", f"{_BATCHES}GenerateBatch")
"""Methods that compute nothing, or that count each of their requests themselves."""
_METADATA_KEY = "authorization"


class KeyInterceptor(grpc.aio.ServerInterceptor):
    """Ends calls without a valid key with UNAUTHENTICATED, calls that the key may not make with
    PERMISSION_DENIED, and calls beyond its limits with RESOURCE_EXHAUSTED. Sits behind the
    ErrorInterceptor."""

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
        if handler is None or details.method.startswith(OPEN_SERVICES):
            return handler
        metadata = dict(details.invocation_metadata or ())
        try:
            caller = await self._keys.check(metadata.get(_METADATA_KEY))
            # The call's handler runs in this task.
            set_caller(caller)
            if caller is not None:
                _check(caller, details.method)
        except PagewireError as error:
            return _refusing(handler, details.method, error)
        return handler


def _check(caller: Caller, method: str) -> None:
    """Raise the error that keeps `caller` from calling `method`."""
    needed = scope_of_method(method)
    try:
        caller.require(needed)
    except ForbiddenError as error:
        if needed in OPERATING:
            note_call(method.rpartition("/")[2], outcome=error.code)
        raise
    if method not in _FREE_METHODS and needed not in OPERATING:
        caller.usage.begin_request()


def _refusing(handler: Any, method: str, error: PagewireError) -> Any:
    """Return a handler of the same shape that raises `error`, for the ErrorInterceptor to turn
    into a status."""

    async def refuse(request: Any, context: Any) -> Any:
        note_refusal(method, error)
        raise error

    async def refuse_stream(request: Any, context: Any) -> AsyncIterator[Any]:
        note_refusal(method, error)
        raise error
        yield

    kind = ("stream_" if handler.request_streaming else "unary_") + (
        "stream" if handler.response_streaming else "unary"
    )
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    inner = refuse_stream if handler.response_streaming else refuse
    return make(inner, handler.request_deserializer, handler.response_serializer)
