"""Messages to OTLP endpoints: variables, answers, and batches that are sent again."""

import gzip
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from pagewire.cli.certs.authority import Authority
from pagewire_frontend.config import FrontendConfig
from pagewire_frontend.trace_start import make_traces
from pagewire_frontend.traces.otlp_client import ExportOutcome, make_client, read_options
from pagewire_frontend.traces.otlp_convert import export_request, make_resource, spans_of
from pagewire_shared.errors import StartupError
from pagewire_shared.security.roles import LinkRole

from .records import RECORD

SECONDS = 10.0


def body():
    resource = make_resource("pagewire", "1")
    return export_request(resource, "1", spans_of(RECORD, 0.0)).SerializeToString()


class Receiver(TraceServiceServicer):
    """Refuses with the given codes, one a call, and then takes everything."""

    def __init__(self, *codes):
        self.codes, self.taken, self.metadata = list(codes), [], {}
        self.done = threading.Event()

    def Export(self, request, context):
        self.metadata = dict(context.invocation_metadata())
        if self.codes:
            context.abort(self.codes.pop(0), "not now")
        self.taken.append(request)
        self.done.set()
        return ExportTraceServiceResponse()


@contextmanager
def grpc_endpoint(receiver, credentials=None):
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(receiver, server)
    if credentials is None:
        endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    else:
        endpoint = f"https://localhost:{server.add_secure_port('127.0.0.1:0', credentials)}"
    server.start()
    try:
        yield endpoint
    finally:
        server.stop(None).wait()


@contextmanager
def http_endpoint(statuses):
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            data = self.rfile.read(int(self.headers["content-length"]))
            asked.append((dict(self.headers), data))
            self.send_response(statuses.pop(0))
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_grpc_sends_headers_and_says_what_became_of_it(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-general=1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "X-Key=a%20b, x-other=c=d")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    receiver = Receiver(grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INVALID_ARGUMENT)
    with grpc_endpoint(receiver) as endpoint:
        client = make_client(endpoint, read_options())
        answers = [client.send(body(), SECONDS) for _ in range(3)]
        client.close()
    assert answers == [ExportOutcome.LATER, ExportOutcome.REFUSED, ExportOutcome.TAKEN]
    assert (receiver.metadata["x-key"], receiver.metadata["x-other"]) == ("a b", "c=d")
    assert "x-general" not in receiver.metadata
    [group] = receiver.taken[0].resource_spans
    assert group.scope_spans[0].spans[0].name == "llm_request"


def test_grpc_with_tls_believes_the_authority_of_the_variable(monkeypatch, tmp_path):
    authority = Authority.create(tmp_path, "default", 10.0)
    authority.issue_public(tmp_path / "server", ["localhost"], days=1.0)
    own = tmp_path / "own"
    authority.issue(own, LinkRole.FRONTEND, cell="default", instance="1", days=1.0)
    key, chain, root = (
        (tmp_path / "server" / name).read_bytes() for name in ("tls.key", "tls.crt", "ca.crt")
    )
    credentials = grpc.ssl_server_credentials([(key, chain)], root, require_client_auth=True)
    receiver = Receiver()
    with grpc_endpoint(receiver, credentials) as endpoint:
        stranger = make_client(endpoint, read_options())
        assert stranger.send(body(), 1.0) is ExportOutcome.LATER
        for name, file in (
            ("CERTIFICATE", "ca.crt"),
            ("CLIENT_KEY", "tls.key"),
            ("CLIENT_CERTIFICATE", "tls.crt"),
        ):
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", str(own / file))
        known = make_client(endpoint, read_options())
        assert known.send(body(), SECONDS) is ExportOutcome.TAKEN
        stranger.close()
        known.close()


def test_http_sends_what_grpc_does(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=1")
    with http_endpoint([503, 400, 200]) as (endpoint, asked):
        client = make_client(endpoint, read_options())
        answers = [client.send(body(), SECONDS) for _ in range(3)]
    assert answers == [ExportOutcome.LATER, ExportOutcome.REFUSED, ExportOutcome.TAKEN]
    assert client.send(body(), SECONDS) is ExportOutcome.LATER
    headers, data = asked[-1]
    named = {name.lower(): value for name, value in headers.items()}
    assert (named["content-type"], named["x-key"]) == ("application/x-protobuf", "1")
    sent = ExportTraceServiceRequest.FromString(gzip.decompress(data))
    assert len(sent.resource_spans[0].scope_spans[0].spans) == 10


def test_a_batch_that_the_endpoint_wants_later_is_sent_again():
    receiver = Receiver(grpc.StatusCode.UNAVAILABLE)
    with grpc_endpoint(receiver) as endpoint:
        config = FrontendConfig(
            scheduler="127.0.0.1:1", model=("m=/tmp",), otlp_traces_endpoint=endpoint
        )
        traces, close = make_traces(config)
        assert traces is not None
        traces.put(RECORD)
        assert receiver.done.wait(SECONDS)
        close()
    assert len(receiver.taken) == 1


def test_a_missing_file_names_the_variable_family(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem")
    config = FrontendConfig(
        scheduler="127.0.0.1:1", model=("m=/tmp",), otlp_traces_endpoint="https://127.0.0.1:1"
    )
    with pytest.raises(StartupError, match=r"OTEL_EXPORTER_OTLP_\*.*ca.pem"):
        make_traces(config)


def test_the_resource_has_what_the_variables_say(monkeypatch):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=lost,team=a%2Cb,bad")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    found = {one.key: one.value.string_value for one in make_resource("pagewire", "1").attributes}
    assert found == {"service.name": "mine", "service.version": "1", "team": "a,b"}
