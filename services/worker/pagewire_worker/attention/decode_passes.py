"""How decodes share scratch memory that does not hold the splits of all of them. Pure."""

from pagewire_worker.backend.attention import Int64Array


def cut_passes(counts: Int64Array, capacity: int) -> list[tuple[int, int]]:
    """Return ranges of decodes, in order, whose splits fit in the memory together.

    Args:
        counts: [decodes], splits of each.
        capacity: Splits that there is memory for; a range of one may pass it only where that one
            does, which the size of the memory rules out.
    """
    ranges: list[tuple[int, int]] = []
    begin = taken = 0
    for index, count in enumerate(counts.tolist()):
        if index > begin and taken + count > capacity:
            ranges.append((begin, index))
            begin, taken = index, 0
        taken += count
    if len(counts):
        ranges.append((begin, len(counts)))
    return ranges
