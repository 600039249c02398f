"""Refuses calls of roles that the table of callers does not name, and of instances that a file
beside the certificate does not."""

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc.aio

from pagewire_shared.errors import ForbiddenError
from pagewire_shared.security import audit
from pagewire_shared.security.callers import may_call
from pagewire_shared.security.instances import AllowedInstances
from pagewire_shared.security.roles import LinkRole, PeerIdentity, identity_of

_logger = logging.getLogger(__name__)
_NAMES = "x509_subject_alternative_name"


class CallerInterceptor(grpc.aio.ServerInterceptor):
    """Checks the certificate of the caller, which the transport has verified, for each call."""

    def __init__(self, instances: AllowedInstances) -> None:
        self._instances = instances

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap the handler of one call."""
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None:
            return None
        kind = ("stream" if handler.request_streaming else "unary") + (
            "_stream" if handler.response_streaming else "_unary"
        )
        inner = getattr(handler, kind)
        is_generator = handler.response_streaming and not inspect.iscoroutinefunction(inner)
        wrap = _checked_stream if is_generator else _checked
        wrapped = wrap(inner, method, self._instances)
        make = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(wrapped, handler.request_deserializer, handler.response_serializer)


def _checked(inner: Any, method: str, instances: AllowedInstances) -> Any:
    async def call(request: Any, context: Any) -> Any:
        check_caller(method, context, instances)
        return await inner(request, context)

    return call


def _checked_stream(inner: Any, method: str, instances: AllowedInstances) -> Any:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        check_caller(method, context, instances)
        async with aclosing(inner(request, context)) as responses:
            async for response in responses:
                yield response

    return call


def peer_of(context: Any) -> PeerIdentity:
    """Return what the caller's certificate says; of no role without TLS."""
    return identity_of(context.auth_context().get(_NAMES, ()))


def check_caller(method: str, context: Any, instances: AllowedInstances) -> None:
    """Raise ForbiddenError if the caller may not call a method, and log it."""
    peer = peer_of(context)
    if may_call(method, peer.roles) and instances.allows(peer):
        if LinkRole.OPERATOR in peer.roles:
            audit.note("operator_call", method=method, who=str(peer), where=context.peer())
        return
    audit.note(audit.REFUSED, method=method, who=str(peer), where=context.peer())
    _logger.warning("refused %s of %s at %s", method, peer, context.peer())
    raise ForbiddenError(f"{method} may not be called by {peer}")
