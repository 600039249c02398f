"""Turns the records of requests into spans as OTLP messages: one of the request, below it one per
stage, and below these what workers and stores did.

The messages are made at once from plain data: a library's span objects cost more than all else
about a trace.
"""

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from pagewire_frontend.traces.attributes import request_attributes
from pagewire_frontend.traces.moments import CellSpan, cell_spans
from pagewire_frontend.traces.request_record import RequestRecord
from pagewire_frontend.traces.stages import CHOICE, AttributeValue, stages_of

_SPAN_ID_BYTES: Final = 8
_SAMPLED: Final = 0x01
_SAYS_WHETHER_REMOTE: Final = 0x100
_HAS_REMOTE_PARENT: Final = 0x200
_SCOPE: Final = "pagewire"


def make_resource(service_name: str, version: str) -> Resource:
    """Return what all spans have in common, with OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.

    Format: https://opentelemetry.io/docs/specs/otel/resource/sdk/ (key=value, with commas between).
    """
    found: dict[str, AttributeValue] = {"service.name": service_name, "service.version": version}
    for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        name, equals, value = pair.partition("=")
        if equals and name.strip():
            found[name.strip()] = unquote(value.strip())
    if named := os.environ.get("OTEL_SERVICE_NAME"):
        found["service.name"] = named
    return Resource(attributes=_attributes(found))


def export_request(
    resource: Resource, version: str, spans: Iterable[Span]
) -> ExportTraceServiceRequest:
    """Return the message with all `spans`."""
    scope = ScopeSpans(scope=InstrumentationScope(name=_SCOPE, version=version), spans=spans)
    group = ResourceSpans(resource=resource, scope_spans=[scope])
    return ExportTraceServiceRequest(resource_spans=[group])


class _Trace:
    """Makes the spans of one trace."""

    def __init__(self, record: RequestRecord, clock: float, num_spans: int) -> None:
        parent = record.parent
        self._clock = clock
        self._trace_id = (
            record.request_id if parent is None else parent.trace_id.to_bytes(16, "big")
        )
        self._state = "" if parent is None else parent.state
        self._ids = os.urandom(_SPAN_ID_BYTES * num_spans)
        self.spans: list[Span] = []

    def add(
        self,
        name: str,
        began_at: float,
        ended_at: float,
        attributes: Mapping[str, AttributeValue],
        parent_id: bytes = b"",
    ) -> Span:
        """Add a span, and return it."""
        first = _SPAN_ID_BYTES * len(self.spans)
        span = Span(
            trace_id=self._trace_id,
            span_id=self._ids[first : first + _SPAN_ID_BYTES],
            trace_state=self._state,
            parent_span_id=parent_id,
            flags=_SAMPLED | _SAYS_WHETHER_REMOTE,
            name=name,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=int((began_at + self._clock) * 1e9),
            end_time_unix_nano=int((ended_at + self._clock) * 1e9),
            attributes=_attributes(attributes),
        )
        self.spans.append(span)
        return span

    def link(self, span: Span, to: Span) -> None:
        """Link a span of a later run to one of the run before."""
        span.links.append(Span.Link(trace_id=self._trace_id, span_id=to.span_id))


def spans_of(record: RequestRecord, clock: float) -> list[Span]:
    """Return the spans of a request. `clock` is time.time() less the record's clock, in seconds."""
    stages, below, parent = stages_of(record), cell_spans(record), record.parent
    num_spans = 1 + len(stages) + sum(1 + len(one.parts) for one in below)
    trace = _Trace(record, clock, num_spans)
    attributes = request_attributes(record)
    root = trace.add("llm_request", record.arrived_at, record.ended_at, attributes)
    root.kind = Span.SPAN_KIND_SERVER
    if parent is not None:
        root.parent_span_id = parent.span_id.to_bytes(_SPAN_ID_BYTES, "big")
        root.flags |= _HAS_REMOTE_PARENT
    if record.error:
        root.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=record.error))
    ids: dict[tuple[str, AttributeValue | None], bytes] = {}
    for stage in stages:
        span = trace.add(stage.name, stage.began_at, stage.ended_at, stage.attributes, root.span_id)
        ids[stage.name, stage.attributes.get(CHOICE)] = span.span_id
    _add_cell_spans(trace, below, ids, root.span_id)
    return trace.spans


def _add_cell_spans(
    trace: _Trace,
    below: Iterable[CellSpan],
    stage_ids: Mapping[tuple[str, AttributeValue | None], bytes],
    root_id: bytes,
) -> None:
    """Add the spans under their stages, and links between the runs of each choice."""
    newest: dict[int, tuple[int, Span]] = {}
    for one in below:
        # A stage that took no time has no span.
        parent_id = stage_ids.get((one.stage, one.choice), root_id)
        span = trace.add(one.name, one.began_at, one.ended_at, one.attributes, parent_id)
        for part in one.parts:
            trace.add(part.name, part.began_at, part.ended_at, part.attributes, span.span_id)
        epoch, before = newest.get(one.choice, (one.epoch, span))
        if epoch != one.epoch:
            trace.link(span, before)
        newest[one.choice] = one.epoch, span


def _attributes(values: Mapping[str, AttributeValue]) -> list[KeyValue]:
    return [
        _pair(name, value) if isinstance(value, float) else _kept_pair(name, value)
        for name, value in values.items()
    ]


def _pair(name: str, value: AttributeValue) -> KeyValue:
    return KeyValue(key=name, value=_value(value))


@lru_cache(maxsize=1024, typed=True)
def _kept_pair(name: str, value: AttributeValue) -> KeyValue:
    """Return a pair that is probably the same in other requests; it is copied into spans."""
    return _pair(name, value)


def _value(value: AttributeValue) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    # A bool is an int.
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(array_value=ArrayValue(values=map(_value, value)))
