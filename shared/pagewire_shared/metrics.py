"""The metrics endpoint of a process: one registry, served in Prometheus' text form by a thread."""

from pagewire_shared.errors import StartupError


def serve_metrics(port: int) -> None:
    """Serve the default registry of prometheus-client on `port` of every interface, at /metrics.

    Raises:
        StartupError: The port is taken, or prometheus-client is not installed.
    """
    # Imported here: a process without the flag needs neither the package nor its collectors.
    try:
        from prometheus_client import start_http_server
    except ImportError as error:
        raise StartupError(
            "--metrics-port needs prometheus-client; it comes with every role's extra",
            field="metrics_port",
        ) from error
    try:
        start_http_server(port)
    except OSError as error:
        raise StartupError(
            f"--metrics-port: cannot listen on port {port}: {error.strerror}", field="metrics_port"
        ) from error
