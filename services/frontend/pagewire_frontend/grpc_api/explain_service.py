"""Explains over gRPC where the time of a request went. `key_interceptor` checks before that the key
may administrate."""

from typing import Any

import grpc.aio

from pagewire_frontend.access.admin_log import noted
from pagewire_frontend.traces.explanation import CHOICE, explain
from pagewire_frontend.traces.history import RequestHistory
from pagewire_frontend.traces.request_record import RequestRecord
from pagewire_frontend.traces.stages import Stage
from pagewire_protos.frontend.v1 import explain_pb2 as pb
from pagewire_protos.frontend.v1 import explain_pb2_grpc


class ExplainService(explain_pb2_grpc.ExplainServiceServicer):
    """Answers from the requests that ended at this frontend."""

    def __init__(self, history: RequestHistory) -> None:
        self._history = history

    async def Explain(
        self, request: pb.ExplainRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> pb.ExplainResponse:
        """Explain one request."""
        with noted("Explain", request):
            return _answer(self._history.find(request.request))


def _answer(record: RequestRecord) -> pb.ExplainResponse:
    explanation = explain(record)
    return pb.ExplainResponse(
        request_id=record.request_id.hex(),
        label=record.label or "",
        model=record.model,
        seconds=record.seconds,
        summary=explanation.summary,
        notes=explanation.notes,
        stages=[_stage(record, stage) for stage in explanation.stages],
    )


def _stage(record: RequestRecord, stage: Stage) -> pb.ExplainedStage:
    choice = stage.attributes.get(CHOICE)
    return pb.ExplainedStage(
        name=stage.name,
        began=stage.began_at - record.arrived_at,
        seconds=stage.ended_at - stage.began_at,
        choice=choice if isinstance(choice, int) else None,
    )
