"""Tables of rotary position embeddings (Su et al., 2021), and the rotation by torch.

Cosines and sines of all positions are computed once in float32; a step only gathers their rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from pagewire_worker.families.specs.rope_spec import RopeSpec
from pagewire_worker.layers.rope_scaling import scaled_frequencies

Table = TypeVar("Table")


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines of one step, each [tokens, 1, head_dim].

    `query_scales` [tokens, 1, 1] multiply rotated queries; None for 1.
    """

    cosines: Tensor
    sines: Tensor
    query_scales: Tensor | None = None

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate [tokens, heads, head_dim]; dimension i is paired with i + head_dim / 2."""
        first, second = x.chunk(2, dim=-1)
        rotated = x * self.cosines + torch.cat((-second, first), dim=-1) * self.sines
        return rotated.to(x.dtype)

    def rotate_queries(self, x: Tensor) -> Tensor:
        """Rotate [tokens, heads, head_dim] as `rotate` does, and scale by position."""
        rotated = self.rotate(x)
        return rotated if self.query_scales is None else rotated * self.query_scales.to(x.dtype)


class RotaryTable:
    """Cosines and sines of every position of the context.

    Args:
        dtype: Type of the states that are rotated.
    """

    def __init__(
        self, rope: RopeSpec, num_positions: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        kept = torch.float32 if rope.rounds_late else dtype
        cosines, sines = rotary_tables(rope, num_positions)
        self.cosines = torch.cat((cosines, cosines), dim=-1).to(device, kept)
        self.sines = torch.cat((sines, sines), dim=-1).to(device, kept)
        scales = query_scales(rope, num_positions)
        self.query_scales = None if scales is None else scales.to(device)
        """Factors of rotated queries, float32 [positions]; None for 1."""

    def at(self, positions: Tensor) -> Rotation:
        """Return the rotation of `positions` [tokens]."""
        return Rotation(
            self.cosines.index_select(0, positions).unsqueeze(1),
            self.sines.index_select(0, positions).unsqueeze(1),
            None if self.query_scales is None else self.query_scales[positions].view(-1, 1, 1),
        )


def rotary_tables(rope: RopeSpec, num_positions: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of the first positions, float32 [num_positions, head_dim / 2].

    Dimensions that are not rotated have the cosine 1 and the sine 0. Raises StartupError if the
    scaling does not reach so far.
    """
    frequencies, factor = scaled_frequencies(rope, num_positions)
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)
    cosines, sines = angles.cos(), angles.sin()
    if factor != 1.0:
        cosines, sines = cosines * factor, sines * factor
    num_rest = (rope.head_dim - rope.rotary_dim) // 2
    if num_rest:
        rest = torch.ones(num_positions, num_rest)
        cosines = torch.cat((cosines, rest), dim=-1)
        sines = torch.cat((sines, torch.zeros_like(rest)), dim=-1)
    return cosines, sines


def query_scales(rope: RopeSpec, num_positions: int) -> Tensor | None:
    """Return the factors of rotated queries, float32 [num_positions]; None where all are 1."""
    if rope.query_growth is None:
        return None
    beta, context = rope.query_growth
    positions = torch.arange(num_positions, dtype=torch.float32)
    return 1 + beta * torch.log(1 + torch.floor(positions / context))


def shared_tables(
    ropes: Sequence[RopeSpec | None], make: Callable[[RopeSpec], Table]
) -> list[Table | None]:
    """Return what `make` makes of each spec; equal specs share it, and None stays None."""
    made: list[tuple[RopeSpec, Table]] = []

    def table(rope: RopeSpec) -> Table:
        for known, one in made:
            if known == rope:
                return one
        made.append((rope, make(rope)))
        return made[-1][1]

    return [None if rope is None else table(rope) for rope in ropes]
