"""Explains over gRPC where the time of a request went, of this frontend or another of the group.
`key_interceptor` checks before that the key may administrate."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

import grpc.aio

from pagewire_frontend.access.admin_log import noted
from pagewire_frontend.traces.explain_convert import explained
from pagewire_frontend.traces.history import RequestHistory
from pagewire_protos.frontend.v1 import explain_pb2 as pb
from pagewire_protos.frontend.v1 import explain_pb2_grpc
from pagewire_shared.errors import InvalidRequestError

_logger = logging.getLogger(__name__)


class ExplainPeer(Protocol):
    """Another frontend of the group."""

    async def explain(self, request: str) -> pb.ExplainResponse:
        """Return where the time of one of its requests went."""
        ...


class ExplainService(explain_pb2_grpc.ExplainServiceServicer):
    """Answers from the requests that ended at this frontend, and then from those of the others."""

    def __init__(self, history: RequestHistory, peers: Sequence[ExplainPeer] = ()) -> None:
        self._history = history
        self._peers = peers

    async def Explain(
        self, request: pb.ExplainRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> pb.ExplainResponse:
        """Explain one request."""
        with noted("Explain", request):
            try:
                own = explained(self._history, request.request)
            except InvalidRequestError as error:
                found = await self._of_peers(request.request)
                if not found:
                    raise error from None
            else:
                if request.request:
                    return own
                found = [own, *await self._of_peers("")]
            return max(found, key=lambda one: one.seconds)

    async def _of_peers(self, request: str) -> list[pb.ExplainResponse]:
        asked = (peer.explain(request) for peer in self._peers)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            # One that does not know the request says so.
            if isinstance(answer, Exception) and not isinstance(answer, InvalidRequestError):
                _logger.warning("a request is explained without another frontend: %s", answer)
        return [answer for answer in answers if isinstance(answer, pb.ExplainResponse)]
