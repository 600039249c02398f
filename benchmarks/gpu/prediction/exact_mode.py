"""Products of exact mode: tiles of one shape per weight, however many tokens there are."""

from prediction.cards import Card
from prediction.costs import Costs
from prediction.kernels import ELEMENT, Kernel, Kind, kernel_seconds

NARROWEST, WIDEST, WANTED = 32, 128, 64
DEPTH, ROWS = 64, 64
PROGRAMS_PER_PROCESSOR = 2
"""As many as shared memory holds, with five or three tiles of either side asked for."""


def tile_columns(num_outputs: int) -> int:
    """Return the columns of a weight's tiles, as Tile.of does for bfloat16."""
    wanted = num_outputs // WANTED
    return max(NARROWEST, min(1 << wanted.bit_length() >> 1, WIDEST))


def exact_kernel_seconds(kernel: Kernel, card: Card, costs: Costs) -> float:
    """Return what a kernel of at most 64 rows takes in exact mode.

    A program has a few tiles of its weight on their way at a time. Where there are few programs,
    that is less than memory could bring.
    """
    usual = kernel_seconds(kernel, card, costs)
    if kernel.kind is not Kind.PRODUCT or costs.load_us == 0:
        return usual
    columns = tile_columns(kernel.outputs)
    programs = min(-(-kernel.outputs // columns), PROGRAMS_PER_PROCESSOR * card.processors)
    stages = 4 if columns == WIDEST else 6
    on_the_way = programs * (stages - 1) * columns * DEPTH * ELEMENT
    usual_rate = card.limits.copy * costs.weights_share
    rate = min(usual_rate * costs.tile_share, on_the_way / (costs.load_us * 1e-6))
    return usual + kernel.num_bytes / rate - kernel.num_bytes / usual_rate
