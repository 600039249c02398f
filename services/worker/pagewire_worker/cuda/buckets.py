"""Sizes of batches for which decodes are captured. Pure arithmetic."""

import bisect
from collections.abc import Sequence

FIRST = (1, 2, 4)
FINE_STEP, FINE_END = 8, 256
COARSE_STEP = 16


def decode_buckets(max_num_seqs: int) -> tuple[int, ...]:
    """Return the sizes up to `max_num_seqs`, rising: 1, 2, 4, every 8th to 256, every 16th beyond.

    A batch takes the smallest size that holds it, so that at most 7 rows are padding up to 256;
    the largest size is `max_num_seqs` itself.
    """
    fine = range(FINE_STEP, FINE_END + 1, FINE_STEP)
    coarse = range(FINE_END + COARSE_STEP, max_num_seqs + 1, COARSE_STEP)
    sizes = {size for size in (*FIRST, *fine, *coarse) if size < max_num_seqs}
    return (*sorted(sizes), max_num_seqs)


def bucket_of(buckets: Sequence[int], num_seqs: int) -> int | None:
    """Return the smallest of `buckets` that holds `num_seqs`; None where none does."""
    place = bisect.bisect_left(buckets, num_seqs)
    return buckets[place] if place < len(buckets) else None
