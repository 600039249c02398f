"""Parses and formats sizes such as "2GiB"."""

import re

from pagewire_shared.errors import StartupError

_UNITS = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1000,
    "kib": 1024,
    "m": 1000**2,
    "mb": 1000**2,
    "mib": 1024**2,
    "g": 1000**3,
    "gb": 1000**3,
    "gib": 1024**3,
    "t": 1000**4,
    "tb": 1000**4,
    "tib": 1024**4,
}


def parse_size(text: str | int) -> int:
    """Return bytes for "2GiB", "512M", "1.5GB" or a plain number. Raises StartupError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(text))
    unit = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise StartupError(f"{text!r} is not a size; write for example 2GiB or 512MiB")
    return int(float(match.group(1)) * unit)


def format_size(num_bytes: int) -> str:
    """Return bytes in the largest binary unit with one decimal, such as "1.5 GiB"."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
