"""Sends the spans of requests to an OTLP endpoint, in a thread of its own and in batches. Spans are
made there, too: the event loop hands over a record and goes on."""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from prometheus_client import Counter

from pagewire_frontend.traces.attributes import request_attributes
from pagewire_frontend.traces.parent import TraceParent
from pagewire_frontend.traces.request_record import RequestRecord
from pagewire_frontend.traces.sampling import TracePolicy
from pagewire_frontend.traces.stages import stages_of

_logger = logging.getLogger(__name__)

MAX_WAITING: Final = 4096
"""Requests that wait to be sent; a record has some hundred bytes per choice."""

_BATCH: Final = 64
"""Requests that are sent together."""

_SECONDS: Final = 0.5
"""Time between two batches while few requests end."""

_CLOSE_SECONDS: Final = 1.0

PROTOCOL_VARIABLE: Final = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
"""`grpc` or `http/protobuf`, as for vLLM and other programs."""

_REQUESTS = Counter(
    "pagewire_traced_requests", "Requests whose trace was sent, or could not be", ["outcome"]
)
for _outcome in ("sent", "failed", "dropped"):
    _REQUESTS.labels(_outcome)


def make_otlp(endpoint: str) -> SpanExporter:
    """Return the library's exporter for an endpoint, by gRPC or, where PROTOCOL_VARIABLE says so,
    by HTTP. Headers and certificates are in the variables that the library documents."""
    if os.environ.get(PROTOCOL_VARIABLE, "grpc") == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter as HttpExporter,
        )

        return HttpExporter(endpoint=endpoint)
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https://"))


class _Ids(RandomIdGenerator):
    """Names a trace without a parent after its request."""

    next_trace_id = 0

    def generate_trace_id(self) -> int:
        return self.next_trace_id or super().generate_trace_id()


class _Collected(SpanProcessor):
    """Keeps the spans that have ended until they are taken."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def take(self) -> Sequence[ReadableSpan]:
        """Return them, and forget them."""
        taken, self._spans = self._spans, []
        return taken


class SpanMaker:
    """Makes the spans of a record: one of the request, and below it one per stage."""

    def __init__(self, service_name: str, version: str) -> None:
        named = os.environ.get("OTEL_SERVICE_NAME", service_name)
        # With what OTEL_RESOURCE_ATTRIBUTES says.
        resource = Resource.create({"service.name": named, "service.version": version})
        self._ids, self._collected = _Ids(), _Collected()
        # A TracePolicy has chosen the requests.
        provider = TracerProvider(
            sampler=ALWAYS_ON, resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        provider.add_span_processor(self._collected)
        self._tracer = provider.get_tracer("pagewire", version)

    def spans_of(self, record: RequestRecord, clock: float) -> Sequence[ReadableSpan]:
        """Return the spans. `clock` is time.time() less the record's clock, in seconds."""

        def ns(at: float) -> int:
            return int((at + clock) * 1e9)

        self._ids.next_trace_id = int.from_bytes(record.request_id, "big")
        root = self._tracer.start_span(
            "llm_request",
            _context_of(record.parent),
            SpanKind.SERVER,
            attributes=request_attributes(record),
            start_time=ns(record.arrived_at),
        )
        if record.error:
            root.set_status(Status(StatusCode.ERROR, record.error))
        below = set_span_in_context(root)
        for stage in stages_of(record):
            span = self._tracer.start_span(
                stage.name, below, attributes=stage.attributes, start_time=ns(stage.began_at)
            )
            span.end(ns(stage.ended_at))
        root.end(ns(record.ended_at))
        return self._collected.take()


def _context_of(parent: TraceParent | None) -> Context:
    if parent is None:
        return Context()
    state = TraceState.from_header([parent.state]) if parent.state else None
    # It was decided that this request is traced, whatever its client does.
    context = SpanContext(
        parent.trace_id,
        parent.span_id,
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=state,
    )
    return set_span_in_context(NonRecordingSpan(context), Context())


class TraceExporter:
    """Takes records and sends their spans. A full queue drops the newest, and counts them."""

    def __init__(self, exporter: SpanExporter, policy: TracePolicy, maker: SpanMaker) -> None:
        self._exporter, self._policy, self._maker = exporter, policy, maker
        self._waiting: deque[RequestRecord] = deque()
        self._wake = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def put(self, record: RequestRecord) -> None:
        """Take a record. Never waits."""
        if not self._policy.takes(record):
            return
        if len(self._waiting) >= MAX_WAITING:
            _REQUESTS.labels("dropped").inc()
            return
        self._waiting.append(record)
        if len(self._waiting) >= _BATCH:
            self._wake.set()

    def close(self) -> None:
        """Send what waits, for at most some seconds."""
        self._is_closed = True
        self._wake.set()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            # Ends a batch that the library sends again and again.
            self._exporter.shutdown()
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not (self._is_closed and not self._waiting):
            self._wake.wait(_SECONDS)
            self._wake.clear()
            while self._waiting:
                count = min(_BATCH, len(self._waiting))
                self._send([self._waiting.popleft() for _ in range(count)])
        self._exporter.shutdown()

    def _send(self, records: Sequence[RequestRecord]) -> None:
        # Not once for all: the clock of the wall is set now and then.
        clock = time.time() - time.monotonic()
        try:
            spans = [span for record in records for span in self._maker.spans_of(record, clock)]
            is_sent = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:
            # A fault of the library must not end the thread.
            _logger.exception("traces of %d requests are lost", len(records))
            is_sent = False
        _REQUESTS.labels("sent" if is_sent else "failed").inc(len(records))
