"""Starts the export of traces where an endpoint is given, and imports its library only then."""

from collections.abc import Callable

from pagewire_frontend.config import FrontendConfig
from pagewire_frontend.traces.request_record import RequestRecord
from pagewire_frontend.traces.sampling import TracePolicy
from pagewire_shared.process.extras import needs_extra
from pagewire_shared.process.metrics import package_version

SERVICE_NAME = "pagewire"


def make_traces(
    config: FrontendConfig,
) -> tuple[Callable[[RequestRecord], None] | None, Callable[[], None]]:
    """Return what takes the records of requests, None without an endpoint, and what ends it.

    Raises:
        StartupError: The library is not installed.
    """
    if not config.otlp_traces_endpoint:
        return None, lambda: None
    with needs_extra("otel"):
        from pagewire_frontend.traces.exporter import SpanMaker, TraceExporter, make_otlp

        exporter = make_otlp(config.otlp_traces_endpoint)
    policy = TracePolicy(config.trace_ratio, config.trace_slow_seconds)
    traces = TraceExporter(exporter, policy, SpanMaker(SERVICE_NAME, package_version()))
    return traces.put, traces.close
