"""Compares answers with speculation to answers without, over models, proposers and weather.

`python -m support.speculated --tokens 1000000` in `tests` compares so many tokens. Every case can
be run alone: `--targets "qwen3 int8" --proposers suffix --seed 5`.
"""

import argparse
import itertools
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.speculated.cells import PlainAnswers, SpeculatedCell
from support.speculated.targets import (
    PROPOSERS,
    TARGETS,
    proposers_of,
    speculated_cell,
    write_adapters,
    write_target,
)


@dataclass
class Total:
    """What was compared with one proposer."""

    tokens: int = 0
    drafts: int = 0
    right: int = 0
    predicted: int = 0
    cached: int = 0
    preemptions: int = 0
    moved_blocks: int = 0
    deaths: int = 0

    def add(self, cell: SpeculatedCell) -> None:
        """Count what a cell has done."""
        self.tokens += cell.num_tokens
        self.drafts += cell.counts.num_tokens
        self.right += int(cell.counts.right_at.sum())
        self.predicted += cell.cell.num_predicted
        self.cached += cell.cell.num_cached_tokens
        self.preemptions += cell.cell.num_preemptions
        self.moved_blocks += cell.cell.num_moved_blocks
        self.deaths += cell.cell.num_deaths


def cells_of(
    place: Path, seed: int, name: str, proposers: Sequence[str]
) -> Iterator[tuple[str, SpeculatedCell]]:
    """Yield the name of each proposer for a target, and its cell."""
    target = TARGETS[name]
    chosen = [one for one in proposers_of(target) if one in proposers]
    if not chosen:
        return
    folder = write_target(place, target)
    adapters = write_adapters(place, folder, target.num_adapters)
    plain = PlainAnswers(folder, target.settings, seed, adapters=adapters)
    for proposer in chosen:
        print(f"--seed {seed} --targets '{name}' --proposers '{proposer}'", flush=True)
        yield proposer, speculated_cell(plain, name, proposer, place / proposer)


def show(totals: dict[str, Total]) -> None:
    """Print a line per proposer, and one for all."""
    every = sum(one.tokens for one in totals.values())
    print(f"{every} tokens are the same")
    for name, total in totals.items():
        numbers = (f"{number} {what}" for what, number in vars(total).items())
        print(f"  {name:20} {', '.join(numbers)}")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--tokens-per-case", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--targets", nargs="+", choices=[*TARGETS], default=[*TARGETS])
    parser.add_argument("--proposers", nargs="+", choices=PROPOSERS, default=PROPOSERS)
    arguments = parser.parse_args()
    totals: dict[str, Total] = defaultdict(Total)
    rounds = (
        (seed, name) for seed in itertools.count(arguments.seed) for name in arguments.targets
    )
    for seed, name in rounds:
        rest = arguments.tokens - sum(one.tokens for one in totals.values())
        if rest <= 0:
            break
        with tempfile.TemporaryDirectory() as place:
            for proposer, cell in cells_of(Path(place), seed, name, arguments.proposers):
                cell.check(min(rest, arguments.tokens_per_case))
                totals[proposer].add(cell)
        show(totals)


if __name__ == "__main__":
    main()
