"""Parses and formats sizes such as "2GiB", and parses counts such as "32k"."""

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


_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def parse_count(text: str | int) -> int:
    """Return the number for "8192", "32k" (32000), "32K" (32768) or "25.6k". Raises StartupError.

    As in vLLM, a small letter is a power of 1000, and a capital one of 1024 without decimals.
    """
    match = re.fullmatch(r"\s*(-?\d+)(\.\d+)?([kmgKMG]?)\s*", str(text))
    if match is None or (match.group(2) and match.group(3) not in ("k", "m", "g")):
        raise StartupError(f"{text!r} is not a whole number; 32k, 32K and 25.6k are")
    factor = _FACTORS.get(match.group(3), 1)
    return round(float(match.group(1) + (match.group(2) or "")) * factor)


def format_size(num_bytes: int) -> str:
    """Return bytes in the largest binary unit with one decimal, such as "1.5 GiB"."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
