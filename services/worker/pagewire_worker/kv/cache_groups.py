"""Divides the layers of a model into cache groups, so that windows give their blocks back."""

from collections.abc import Sequence
from typing import Final

from pagewire_worker.kv.kv_cache import LayerGroup

MAX_GROUPS: Final = 8
"""Each group costs a block table per sequence, and work per step."""

WORTHWHILE: Final = 7 / 8
"""Memory of the longest sequence in groups, at most, relative to one group that keeps all."""

BLOCK_TOKENS: Final = 16
"""Tokens per block, for a comparison that does not depend on settings."""


def layer_groups(windows: Sequence[int | None], max_positions: int) -> tuple[LayerGroup, ...]:
    """Return the groups of layers with these windows; none where one group of all does as well.

    All blocks have one size, so all groups have room for equally many layers. The number of layers
    is the one with which a sequence of `max_positions` takes the least memory.

    Args:
        windows: Of each layer, in order; None for all positions.
        max_positions: Longest context.
    """
    alike: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        alike.setdefault(window, []).append(layer)
    if len(alike) == 1 or len(alike) > MAX_GROUPS:
        return ()
    sizes = range(1, max(map(len, alike.values())) + 1)
    num_groups = {size: sum(-(-len(one) // size) for one in alike.values()) for size in sizes}
    possible = [size for size in sizes if num_groups[size] <= MAX_GROUPS]
    size = min(possible, key=lambda one: (_cost(alike, one, max_positions), num_groups[one]))
    num_positions = len(windows) * max_positions
    if None not in alike or _cost(alike, size, max_positions) > WORTHWHILE * num_positions:
        return ()
    order = sorted(alike, key=lambda window: (window is not None, window or 0))
    return tuple(
        LayerGroup(tuple(part), window) for window in order for part in _dealt(alike[window], size)
    )


def _cost(alike: dict[int | None, list[int]], size: int, max_positions: int) -> int:
    """Return the layers times positions that the longest sequence takes."""
    return sum(
        -(-len(layers) // size) * size * _positions(window, max_positions)
        for window, layers in alike.items()
    )


def _positions(window: int | None, max_positions: int) -> int:
    # One block at the start of the window that is not full of it, and the one being written.
    return max_positions if window is None else min(max_positions, window + 2 * BLOCK_TOKENS)


def _dealt(layers: list[int], size: int) -> list[list[int]]:
    """Return groups of at most `size` layers, which are computed about equally early."""
    num_groups = -(-len(layers) // size)
    return [layers[first::num_groups] for first in range(num_groups)]
