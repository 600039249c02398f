"""Says which of two formats of metrics a client asks for: Prometheus' text format, or OpenMetrics,
which alone has exemplars."""

from typing import Final

_OPEN: Final = "application/openmetrics-text"
_TEXT: Final = "text/plain"


def is_open_asked(accept: str) -> bool:
    """Return whether an Accept header prefers OpenMetrics to plain text."""
    weights = {_OPEN: 0.0, _TEXT: 0.0}
    for part in accept.split(","):
        kind, *parameters = (one.strip().lower() for one in part.split(";"))
        if kind in weights:
            weights[kind] = max(weights[kind], _weight(parameters))
    return 0.0 < weights[_OPEN] >= weights[_TEXT]


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
