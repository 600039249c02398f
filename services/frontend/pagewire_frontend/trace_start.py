"""Starts the export of traces where an endpoint is given, and imports its library only then."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pagewire_frontend.config import FrontendConfig
from pagewire_frontend.traces.sampling import TracePolicy
from pagewire_shared.errors import StartupError
from pagewire_shared.process.extras import needs_extra
from pagewire_shared.process.metrics import package_version

if TYPE_CHECKING:
    from pagewire_frontend.traces.exporter import TraceExporter

SERVICE_NAME = "pagewire"


def make_traces(config: FrontendConfig) -> tuple["TraceExporter | None", Callable[[], None]]:
    """Return the exporter, None without an endpoint, and what ends it.

    Raises:
        StartupError: The messages of OTLP are not installed, or a file is missing.
    """
    if not config.otlp_traces_endpoint:
        return None, lambda: None
    with needs_extra("otel"):
        from pagewire_frontend.traces.exporter import TraceExporter
        from pagewire_frontend.traces.otlp_client import make_client, read_options
        from pagewire_frontend.traces.otlp_convert import make_resource

    try:
        client = make_client(config.otlp_traces_endpoint, read_options())
    except OSError as error:
        raise StartupError(
            f"--otlp-traces-endpoint: a file of OTEL_EXPORTER_OTLP_* cannot be read: {error}",
            field="otlp_traces_endpoint",
        ) from error
    policy = TracePolicy(config.trace_ratio, config.trace_slow_seconds)
    version = package_version()
    resource = make_resource(SERVICE_NAME, version)
    traces = TraceExporter(client, policy, resource, version)
    return traces, traces.close
