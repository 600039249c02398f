"""Sends messages to an OTLP endpoint, by gRPC or HTTP, with what the standard variables say.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/ names the variables, and
https://opentelemetry.io/docs/specs/otlp/ the errors after which a message is sent again.
"""

import gzip
import logging
import os
import ssl
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPException
from pathlib import Path
from typing import Final, Protocol
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import grpc

_logger = logging.getLogger(__name__)

_METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_LATER_CODES: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_LATER_STATUSES: Final = frozenset({429, 502, 503, 504})


class ExportOutcome(Enum):
    """What the endpoint did with a message."""

    TAKEN = "taken"
    LATER = "later"
    """It was not there, or wants the message again later."""
    REFUSED = "refused"


class OtlpClient(Protocol):
    """Sends one message after another."""

    def send(self, body: bytes, seconds: float) -> ExportOutcome:
        """Send an encoded message, and wait so long at most."""
        ...

    def close(self) -> None:
        """Break off what is being sent, where that is possible."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpOptions:
    """What the variables say; None and no headers without them.

    Attributes:
        headers: Names in lower case, and values.
        certificates: PEM of the authorities that the endpoint's certificate may come from.
        key, own_certificates: PEM of this client's own key and certificates.
    """

    is_http: bool
    headers: tuple[tuple[str, str], ...]
    is_gzip: bool
    certificates: Path | None
    key: Path | None
    own_certificates: Path | None


def read_options() -> OtlpOptions:
    """Return what the variables say; one for traces alone goes before the one for all signals."""
    return OtlpOptions(
        is_http=_variable("PROTOCOL") == "http/protobuf",
        headers=tuple(_headers(_variable("HEADERS"))),
        is_gzip=_variable("COMPRESSION") == "gzip",
        certificates=_path("CERTIFICATE"),
        key=_path("CLIENT_KEY"),
        own_certificates=_path("CLIENT_CERTIFICATE"),
    )


def _variable(name: str) -> str:
    general = os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")
    return (os.environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or general).strip()


def _path(name: str) -> Path | None:
    text = _variable(name)
    return Path(text) if text else None


def _headers(text: str) -> list[tuple[str, str]]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    return [
        (unquote(name.strip()).lower(), unquote(value.strip()))
        for name, equals, value in pairs
        if equals and name.strip()
    ]


def make_client(endpoint: str, options: OtlpOptions) -> OtlpClient:
    """Return a client of an endpoint; TLS where it begins with https://.

    Raises:
        OSError: A file of the options cannot be read.
    """
    return HttpClient(endpoint, options) if options.is_http else GrpcClient(endpoint, options)


class GrpcClient:
    """Sends by gRPC."""

    def __init__(self, endpoint: str, options: OtlpOptions) -> None:
        parts = urlsplit(endpoint)
        target = parts.netloc or endpoint
        compression = grpc.Compression.Gzip if options.is_gzip else None
        if parts.scheme == "https":
            credentials = grpc.ssl_channel_credentials(
                _bytes_of(options.certificates),
                _bytes_of(options.key),
                _bytes_of(options.own_certificates),
            )
            self._channel = grpc.secure_channel(target, credentials, compression=compression)
        else:
            self._channel = grpc.insecure_channel(target, compression=compression)
        # Without serializers: bytes in and out.
        self._export: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            _METHOD
        )
        self._headers = options.headers

    def send(self, body: bytes, seconds: float) -> ExportOutcome:
        """Send a message."""
        try:
            self._export(body, timeout=seconds, metadata=self._headers)
        except grpc.RpcError as error:
            code = error.code()
            _logger.warning("traces: the endpoint answers %s: %s", code.name, error.details())
            return ExportOutcome.LATER if code in _LATER_CODES else ExportOutcome.REFUSED
        return ExportOutcome.TAKEN

    def close(self) -> None:
        """Break off what is being sent."""
        self._channel.close()


class HttpClient:
    """Sends by HTTP, one connection per message."""

    def __init__(self, endpoint: str, options: OtlpOptions) -> None:
        self._endpoint = endpoint
        self._is_gzip = options.is_gzip
        self._headers = {"content-type": "application/x-protobuf", **dict(options.headers)}
        if options.is_gzip:
            self._headers["content-encoding"] = "gzip"
        self._context = None
        if endpoint.startswith("https://"):
            self._context = ssl.create_default_context(cafile=options.certificates)
            if options.own_certificates is not None:
                self._context.load_cert_chain(options.own_certificates, options.key)

    def send(self, body: bytes, seconds: float) -> ExportOutcome:
        """Send a message."""
        data = gzip.compress(body) if self._is_gzip else body
        request = Request(self._endpoint, data, self._headers, method="POST")
        try:
            with urlopen(request, timeout=seconds, context=self._context):
                return ExportOutcome.TAKEN
        except HTTPError as error:
            _logger.warning("traces: the endpoint answers %d", error.code)
            return ExportOutcome.LATER if error.code in _LATER_STATUSES else ExportOutcome.REFUSED
        except (OSError, HTTPException) as error:
            _logger.warning("traces: the endpoint does not answer: %s", error)
            return ExportOutcome.LATER

    def close(self) -> None:
        """Leave what is being sent to its time-out."""


def _bytes_of(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
