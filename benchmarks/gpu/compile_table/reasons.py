"""Spills that are known, and why they stay."""

from collections.abc import Mapping

FREE_BYTES = 16
"""A spill of so much, stores and loads each, needs no reason."""

REASONS: Mapping[tuple[str, str], str] = {
    ("attend_tiles", "32/32x96"): "44 bytes in float32 for 8.0; with 8 warps it is 8 kB",
}
"""(kernel, a word of the variant) -> why."""


def reason_for(kernel: str, variant: str) -> str | None:
    """Return why `kernel` may spill in `variant`; None where nobody has said."""
    for (name, word), reason in REASONS.items():
        if name == kernel and word in variant.split():
            return reason
    return None
