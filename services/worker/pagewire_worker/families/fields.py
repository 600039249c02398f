"""Reads single fields of config.json, and names the field that is at fault."""

from collections.abc import Mapping
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_worker.families.plan import Activation

Data = Mapping[str, Any]
"""Content of a config.json."""

ACTIVATIONS: Mapping[str, Activation] = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}


MOST_INTEGER: Final = 2**31 - 1
MOST_LAYERS: Final = 1 << 16
"""Beyond any model: what follows from larger numbers has no room in memory."""


class UnsupportedModelError(StartupError):
    """The checkpoint may be valid, but the native decoder does not support it."""


def integer(data: Data, name: str, default: int | None = None) -> int:
    """Return a positive integer. Raises StartupError."""
    value = data.get(name)
    if value is None:
        value = default
    if value is None:
        raise StartupError(f"config.json: {name} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StartupError(f"config.json: {name} must be a positive integer, got {value!r}")
    most = MOST_LAYERS if name == "num_hidden_layers" else MOST_INTEGER
    if value > most:
        raise StartupError(f"config.json: {name} is {value}, more than {most}")
    return value


def number(data: Data, name: str, default: float | None = None) -> float:
    """Return a positive number. Raises StartupError."""
    value = data.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise StartupError(f"config.json: {name} must be a positive number, got {value!r}")
    return float(value)


def optional_number(data: Data, name: str, default: float | None = None) -> float | None:
    """Return a positive number; None where it is null, or is missing and has no default."""
    if name in data and data[name] is None:
        return None
    return None if default is None and name not in data else number(data, name, default)


def activation(data: Data, name: str = "hidden_act", default: str = "silu") -> Activation:
    """Return the activation of the MLP. Raises UnsupportedModelError."""
    value = data.get(name) or default
    if value not in ACTIVATIONS:
        raise UnsupportedModelError(
            f"config.json: {name} {value!r} is not supported, only {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[value]
