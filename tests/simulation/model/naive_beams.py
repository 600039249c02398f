"""Beam search by the book, over the naive model: the rules are those of transformers'
`GenerationMixin._beam_search` (generation/utils.py, 4.57), written for one prompt without a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from simulation.model.naive import Windows, cells_of, context_of, most_likely, next_cell, root_cell

WORST = -1.0e9


@dataclass(frozen=True, slots=True)
class Beam:
    """Output tokens, the cells of prompt and output, and the sum of log-probabilities."""

    tokens: tuple[int, ...]
    cells: tuple[int, ...]
    total: float


@dataclass(frozen=True, slots=True)
class Found:
    """A finished sequence."""

    tokens: tuple[int, ...]
    score: float


def search(
    prompt: Sequence[int],
    *,
    salt: bytes,
    width: int,
    max_tokens: int,
    length_penalty: float,
    early_stopping: bool | None,
    end_ids: frozenset[int],
    windows: Windows,
) -> list[tuple[int, ...]]:
    """The outputs, best first. `early_stopping` None means "never"."""
    running = [Beam((), tuple(cells_of(root_cell(salt), prompt)), 0.0)]
    finished: list[Found] = []
    num_kept = max(2, 1 + len(end_ids)) * width
    can_improve = True
    for length in range(1, max_tokens + 1):
        candidates = _extended(running, num_kept, windows)
        ends = [beam.tokens[-1] in end_ids or length == max_tokens for beam in candidates]
        new = [
            Found(beam.tokens, beam.total / length**length_penalty)
            for index, beam in enumerate(candidates)
            if ends[index] and index < width
        ]
        if can_improve and not (early_stopping is True and len(finished) == width):
            finished = sorted([*finished, *new], key=lambda found: -found.score)[:width]
        going_on = [beam for index, beam in enumerate(candidates) if not ends[index]]
        running = going_on[:width]
        if not running or length == max_tokens:
            break
        is_full = len(finished) == width
        far = max_tokens if early_stopping is None and length_penalty > 0.0 else length
        worst = finished[-1].score if is_full else WORST
        can_improve = can_improve and running[0].total / far**length_penalty > worst
        if not can_improve or (is_full and early_stopping is True):
            break
    return [found.tokens for found in finished]


def _extended(running: list[Beam], num_kept: int, windows: Windows) -> list[Beam]:
    """The best continuations of all beams together, best first."""
    choices: list[tuple[float, Beam, int]] = []
    for beam in running:
        for token, logprob in most_likely(context_of(beam.cells, windows), num_kept):
            choices.append((beam.total + logprob, beam, token))
    choices.sort(key=lambda choice: -choice[0])
    return [
        Beam(
            (*beam.tokens, token),
            (*beam.cells, next_cell(beam.cells[-1], token, len(beam.cells))),
            total,
        )
        for total, beam, token in choices[:num_kept]
    ]
