"""Cards, and the rates that something has reached on them or may be expected to reach."""

from collections.abc import Mapping
from dataclasses import dataclass

from rates import Limits

COPY_SHARE, PRODUCT_SHARE = 4.3 / 4.8, 788 / 989.4
"""What the H200 reaches of its data sheet: a copy of 2 GiB, and a product of 8192 squared in
bfloat16. Taken for all cards that nobody has measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card.

    Attributes:
        name: For people.
        limits: Its rates.
        memory: Bytes.
        processors: Streaming multiprocessors.
        has_fp8: Whether it multiplies 8-bit floats, which an fp8 cache asks for.
        is_measured: Whether somebody has measured the rates; else they come from its data sheet.
    """

    name: str
    limits: Limits
    memory: float
    processors: int
    has_fp8: bool = True
    is_measured: bool = False


def _by_its_sheet(
    name: str,
    terabytes: float,
    teraflops: float,
    memory: float,
    processors: int,
    *,
    has_fp8: bool = True,
) -> Card:
    """Return a card from its data sheet: TB/s of memory, dense bfloat16 TFLOP/s, GB."""
    limits = Limits(copy=terabytes * COPY_SHARE * 1e12, products=teraflops * PRODUCT_SHARE * 1e12)
    return Card(
        name=name,
        limits=limits,
        memory=memory * 1e9,
        processors=processors,
        has_fp8=has_fp8,
    )


CARDS: Mapping[str, Card] = {
    "h200": Card(
        name="H200",
        limits=Limits(copy=4.3e12, products=788e12),
        memory=149e9,
        processors=132,
        is_measured=True,
    ),
    "h100": _by_its_sheet("H100 SXM", 3.35, 989.4, 85, 132),
    "a100-80g": _by_its_sheet("A100-80G SXM", 2.039, 312, 85, 108, has_fp8=False),
    "l40s": _by_its_sheet("L40S", 0.864, 362, 48, 142),
    "4090": _by_its_sheet("RTX 4090", 1.008, 165.2, 25.7, 128),
}
