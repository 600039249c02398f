"""Turns the explanation of a request into a message."""

from pagewire_frontend.traces.explanation import explain
from pagewire_frontend.traces.history import RequestHistory
from pagewire_frontend.traces.reasons import Reason
from pagewire_frontend.traces.request_record import RequestRecord
from pagewire_frontend.traces.stages import CHOICE, Stage
from pagewire_protos.frontend.v1 import explain_pb2 as pb


def explained(history: RequestHistory, request: str) -> pb.ExplainResponse:
    """Return where the time of a request of this process went.

    Raises:
        InvalidRequestError: It is not known.
    """
    return _answer(history.find(request))


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
        cause=None if explanation.cause is None else _reason(record, explanation.cause),
        reasons=[_reason(record, reason) for reason in explanation.reasons],
        outcome=record.outcome,
    )


def _reason(record: RequestRecord, reason: Reason) -> pb.ExplainedReason:
    return pb.ExplainedReason(
        code=reason.code,
        seconds=reason.seconds,
        share=reason.seconds / record.seconds if record.seconds > 0 else 0.0,
        choice=reason.choice,
    )


def _stage(record: RequestRecord, stage: Stage) -> pb.ExplainedStage:
    choice = stage.attributes.get(CHOICE)
    return pb.ExplainedStage(
        name=stage.name,
        began=stage.began_at - record.arrived_at,
        seconds=stage.ended_at - stage.began_at,
        choice=choice if isinstance(choice, int) else None,
    )
