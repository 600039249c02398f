"""Client of the ExplainService: where the time of a request went."""

import asyncio
from dataclasses import dataclass

import grpc.aio

from pagewire.client.admin_client import ANSWER_MARGIN_SECONDS, key_metadata
from pagewire.client.call_errors import call_error
from pagewire.client.channel import open_channel
from pagewire.client.endpoint import grpc_address
from pagewire.client.target import parse_target
from pagewire_protos.frontend.v1 import explain_pb2, explain_pb2_grpc


@dataclass(frozen=True, slots=True)
class ExplainedStage:
    """One part of the time: seconds after the arrival, and seconds that it took."""

    name: str
    began: float
    seconds: float
    choice: int | None


@dataclass(frozen=True, slots=True)
class ExplainedReason:
    """What took a part of the time, by a stable code; `share` of the whole, from 0 to 1."""

    code: str
    seconds: float
    share: float
    choice: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRequest:
    """Where the time of a request went: in sentences, and by part.

    Attributes:
        label: The client's x-request-id; "" for none.
        seconds: From its arrival to its end.
        outcome: "ended", "failed" or "client_gone"; "" from older frontends.
        cause: The reason in the summary; None where nothing was measured.
        reasons: The longest first.
    """

    request_id: str
    label: str
    model: str
    seconds: float
    summary: str
    notes: tuple[str, ...]
    stages: tuple[ExplainedStage, ...]
    outcome: str
    cause: ExplainedReason | None
    reasons: tuple[ExplainedReason, ...]


async def explain_request(
    address: str, request: str, *, api_key: str | None = None
) -> ExplainedRequest:
    """Return where the time of a request went that ended at a frontend a short while ago.

    Args:
        address: The frontend, by either of its ports or its URL.
        request: Its x-request-id, or at least 8 digits of its id; "" for the slowest.
        api_key: Key for frontends that require one.

    Raises:
        PagewireError: The frontend does not know it, or does not answer.
    """
    target = await asyncio.to_thread(grpc_address, address)
    async with open_channel(parse_target(target, "--server")) as channel:
        stub = explain_pb2_grpc.ExplainServiceStub(channel)
        try:
            answer = await stub.Explain(
                explain_pb2.ExplainRequest(request=request),
                timeout=ANSWER_MARGIN_SECONDS,
                metadata=key_metadata(api_key),
            )
        except grpc.aio.AioRpcError as error:
            raise call_error(error, target) from None
    return ExplainedRequest(
        request_id=answer.request_id,
        label=answer.label,
        model=answer.model,
        seconds=answer.seconds,
        summary=answer.summary,
        notes=tuple(answer.notes),
        stages=tuple(
            ExplainedStage(
                one.name, one.began, one.seconds, one.choice if one.HasField("choice") else None
            )
            for one in answer.stages
        ),
        outcome=answer.outcome,
        cause=_reason(answer.cause) if answer.HasField("cause") else None,
        reasons=tuple(map(_reason, answer.reasons)),
    )


def _reason(reason: explain_pb2.ExplainedReason) -> ExplainedReason:
    choice = reason.choice if reason.HasField("choice") else None
    return ExplainedReason(reason.code, reason.seconds, reason.share, choice)
