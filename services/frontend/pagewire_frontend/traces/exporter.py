"""Sends the spans of requests to an OTLP endpoint, in a thread of its own and in batches. Spans are
made there, too: the event loop hands over a record and goes on."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client import Counter

from pagewire_frontend.traces.otlp_client import ExportOutcome, OtlpClient
from pagewire_frontend.traces.otlp_convert import export_request, spans_of
from pagewire_frontend.traces.request_record import RequestRecord
from pagewire_frontend.traces.sampling import TracePolicy

_logger = logging.getLogger(__name__)

MAX_WAITING: Final = 4096
"""Requests that wait to be sent; a record has some hundred bytes per choice."""

_BATCH: Final = 64
"""Requests that are sent together."""

_SECONDS: Final = 0.5
"""Time between two batches while few requests end."""

_SEND_SECONDS: Final = 10.0
"""For a batch, however often it is sent."""

_CLOSE_SECONDS: Final = 1.0

_REQUESTS = Counter(
    "pagewire_traced_requests", "Requests whose trace was sent, or could not be", ["outcome"]
)
for _outcome in ("sent", "failed", "dropped"):
    _REQUESTS.labels(_outcome)


class TraceExporter:
    """Takes records and sends their spans. A full queue drops the newest, and counts them."""

    def __init__(
        self, client: OtlpClient, policy: TracePolicy, resource: Resource, version: str
    ) -> None:
        self._client, self.policy = client, policy
        self._resource, self._version = resource, version
        self._waiting: deque[RequestRecord] = deque()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def put(self, record: RequestRecord) -> None:
        """Take the record of a request that `policy` takes. Never waits."""
        if len(self._waiting) >= MAX_WAITING:
            _REQUESTS.labels("dropped").inc()
            return
        self._waiting.append(record)
        if len(self._waiting) >= _BATCH:
            self._wake.set()

    def close(self) -> None:
        """Send what waits, for at most some seconds."""
        self._closing.set()
        self._wake.set()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            self._client.close()
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        while not (self._closing.is_set() and not self._waiting):
            self._wake.wait(_SECONDS)
            self._wake.clear()
            while self._waiting:
                count = min(_BATCH, len(self._waiting))
                self._send([self._waiting.popleft() for _ in range(count)])
        self._client.close()

    def _send(self, records: Sequence[RequestRecord]) -> None:
        try:
            is_sent = self._deliver(self._encoded(records))
        except Exception:
            # A fault of one batch must not end the thread.
            _logger.exception("traces of %d requests are lost", len(records))
            is_sent = False
        _REQUESTS.labels("sent" if is_sent else "failed").inc(len(records))

    def _encoded(self, records: Sequence[RequestRecord]) -> bytes:
        # Not once for all: the clock of the wall is set now and then.
        clock = time.time() - time.monotonic()
        spans: list[Span] = []
        for record in records:
            spans += spans_of(record, clock)
            # A batch takes longer than the event loop should wait for the interpreter's lock.
            time.sleep(0)
        encoded: bytes = export_request(self._resource, self._version, spans).SerializeToString()
        return encoded

    def _deliver(self, body: bytes) -> bool:
        """Send a batch, again where the endpoint wants that, and return whether it was taken."""
        end, pause = time.monotonic() + _SEND_SECONDS, 1.0
        while (left := end - time.monotonic()) > 0:
            answer = self._client.send(body, left)
            if answer is not ExportOutcome.LATER:
                return answer is ExportOutcome.TAKEN
            if self._closing.wait(min(pause, left)):
                return False
            pause *= 2
        return False
