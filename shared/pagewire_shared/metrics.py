"""The metrics endpoint of a process: one registry, served in Prometheus' text form by a thread."""

import threading
from collections.abc import Callable
from functools import cache
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING

from pagewire_shared.errors import StartupError
from pagewire_shared.version import package_version

if TYPE_CHECKING:
    from prometheus_client import Gauge


def serve_metrics(port: int, role: str) -> None:
    """Serve the default registry of prometheus-client on `port` of every interface, at /metrics,
    and in it which `role` this is.

    Raises:
        StartupError: The port is taken, or prometheus-client is not installed.
    """
    # Imported here: a process without the flag needs neither the package nor its collectors.
    try:
        from prometheus_client import MetricsHandler, disable_created_metrics
    except ImportError as error:
        raise StartupError(
            "--metrics-port needs prometheus-client; it comes with every role's extra",
            field="metrics_port",
        ) from error

    class PlainTextHandler(MetricsHandler):
        """Answers in one format, whatever is accepted: in OpenMetrics' prometheus-client writes
        the colons of names as underscores, and they are part of names that others look for."""

        def do_GET(self) -> None:
            del self.headers["Accept"]
            super().do_GET()

    # Instants that nobody asks for, one for each series that grows.
    leave_out_instants: Callable[[], None] = disable_created_metrics
    leave_out_instants()
    show_build(role)
    try:
        server = ThreadingHTTPServer(("0.0.0.0", port), PlainTextHandler)
    except OSError as error:
        raise StartupError(
            f"--metrics-port: cannot listen on port {port}: {error.strerror}", field="metrics_port"
        ) from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()


def show_build(role: str) -> None:
    """Show version and role of this process as a metric; again changes nothing."""
    _build_info().labels(package_version(), role).set(1)


@cache
def _build_info() -> "Gauge":
    from prometheus_client import Gauge

    return Gauge("pagewire_build_info", "Version and role of a process", ["version", "role"])
