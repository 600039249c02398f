"""Rates of a device that bounds are made of. Imports nothing, so that predictions need no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates of a device.

    Attributes:
        copy: Bytes read and written per second, by a copy within its memory.
        products: Floating point operations per second of a matrix product in the model's type.
    """

    copy: float
    products: float
