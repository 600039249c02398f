"""Writes and reads metrics in two formats: Prometheus' text format, version 0.0.4, and OpenMetrics,
which alone has exemplars. Picks the one that a client asks for.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/,
https://prometheus.io/docs/specs/om/open_metrics_spec/.
"""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_families,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_END: Final = "# EOF\n"
"""Of a text in OpenMetrics."""


def written(registry: Collector, *, is_open: bool) -> str:
    """Return the metrics of a registry as text."""
    if not is_open:
        return generate_latest(registry).decode()
    # Names with colons, such as vLLM's, stay as they are.
    write: Callable[..., bytes] = openmetrics.generate_latest
    return write(registry, escaping=openmetrics.ALLOWUTF8).decode()


def families_in(text: str) -> Iterator[Metric]:
    """Yield the metrics of a text in either format.

    Raises:
        ValueError: It is not one.
    """
    is_open = text.endswith(_END)
    yield from (open_families if is_open else text_string_to_metric_families)(text)
