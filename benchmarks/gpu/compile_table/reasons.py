"""Spills that are known, and why they stay."""

from collections.abc import Mapping

FREE_BYTES = 16
"""A spill of so much, stores and loads each, needs no reason."""

_WIDE_TILES = "64 bytes on 8.0 and 8.9 of tiles that are right for 9.0, where none are"

REASONS: Mapping[tuple[str, str], str] = {
    ("attend_prompts", "32/32x96 bf16"): _WIDE_TILES,
    ("attend_prompts", "32/8x128 bf16"): _WIDE_TILES,
    ("attend_prompts", "32/8x128 fp16"): _WIDE_TILES,
    (
        "attend_tiles",
        "32/32x96 fp32",
    ): "44 bytes on 8.0, 68 on 8.9 with 16 warps; 8 warps spilled 8 kB",
    ("attend_tiles", "32/8x128 fp32"): "80 bytes on 8.9 with 16 warps, none on 8.0 and 9.0",
    ("attend_tiles", "32/8x128 fp32 fp8-cache"): "28 bytes on 9.0, where heads of the cache are"
    " counted in 64 bits",
    ("filter_thresholds", "filters fp32"): "24 bytes on 8.0, beyond the 128 registers that each of"
    " 512 threads can have",
}
"""(kernel, variant) -> why."""


def reason_for(kernel: str, variant: str) -> str | None:
    """Return why `kernel` may spill in `variant`; None where nobody has said."""
    return REASONS.get((kernel, variant))
