"""Shows when certificates end, as a metric."""

import contextlib
from functools import cache
from typing import TYPE_CHECKING

from pagewire_shared.security.tls_files import WatchedTlsFiles

if TYPE_CHECKING:
    from prometheus_client import Gauge


def show_end(watched: WatchedTlsFiles) -> None:
    """Show from now on when the certificate in use ends; new files count as soon as they are there.

    Commands do without prometheus-client, which comes with roles.
    """
    with contextlib.suppress(ImportError):
        shown = certificate_ends().labels(watched.paths.setting)
        shown.set_function(lambda: watched.read().text.ends)


@cache
def certificate_ends() -> "Gauge":
    """Return the gauge, which is made with the first certificate."""
    from prometheus_client import Gauge

    return Gauge(
        "pagewire_certificate_end_timestamp_seconds",
        "When the certificate in use ends, in seconds since 1970",
        ["setting"],
    )
