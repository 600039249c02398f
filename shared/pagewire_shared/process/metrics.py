"""The metrics endpoint of a process: one registry, served in Prometheus' text form by a thread,
with the version of Pagewire."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from pagewire_shared.errors import StartupError
from pagewire_shared.process.metrics_access import MetricsAccess
from pagewire_shared.process.metrics_server import MetricsServer
from pagewire_shared.rpc.address import Address

if TYPE_CHECKING:
    from prometheus_client import Gauge
from importlib import metadata


def serve_metrics(address: Address, role: str, access: MetricsAccess | None = None) -> None:
    """Serve the default registry of prometheus-client at /metrics of `address`, with a metric that
    names the `role`. `access` says who may read it;
    None for everybody.

    Raises:
        StartupError: The address cannot be used, or prometheus-client is not installed.
    """
    # Imported here: a process without the flag needs neither the package nor its collectors.
    try:
        from prometheus_client import disable_created_metrics, make_wsgi_app
    except ImportError as error:
        raise StartupError(
            "--metrics-port needs prometheus-client; it comes with every role's extra",
            field="metrics_port",
        ) from error

    # The time of creation of each counter, which Pagewire does not show.
    leave_out_instants: Callable[[], None] = disable_created_metrics
    leave_out_instants()
    show_build(role)
    try:
        MetricsServer(make_wsgi_app(), access).start(address.host, address.port)
    except OSError as error:
        raise StartupError(
            f"--metrics-port: cannot listen on {address}: {error.strerror}", field="metrics_port"
        ) from error


def show_build(role: str) -> None:
    """Show version and role of this process as a metric; a second call changes nothing."""
    _build_info().labels(package_version(), role).set(1)


@cache
def _build_info() -> "Gauge":
    from prometheus_client import Gauge

    return Gauge("pagewire_build_info", "Version and role of a process", ["version", "role"])


def package_version() -> str:
    """Return the version of the installed package."""
    try:
        return metadata.version("pagewire")
    except metadata.PackageNotFoundError:
        return "unknown"  # run from a source tree that is not installed
