"""`make simulate`: runs seeds, counts what they exercised, and makes small what fails.

python -m simulation.run --seeds N [--first K] [--jobs 2]
python -m simulation.run --replay FILE
"""

import argparse
import logging
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from simulation import history, shrink
from simulation.coverage import INVARIANTS, Coverage, later_moves, reachable_moves
from simulation.events import WEIGHTS

CHUNK = 20
REPEAT_EVERY = 8
"""One seed in so many runs twice and must send the same."""


@dataclass
class Outcome:
    """What some seeds came to."""

    coverage: Coverage = field(default_factory=Coverage)
    failures: list[tuple[int, history.Failure]] = field(default_factory=list)


def run_seed(seed: int, outcome: Outcome, num_events: int) -> None:
    """Run a seed, some of them twice."""
    configuration = history.configuration_of(seed)
    events = history.events_of(seed, num_events)
    failure, digest = history.run(configuration, events, outcome.coverage)
    if failure is None and seed % REPEAT_EVERY == 0:
        _, again = history.run(configuration, events, Coverage())
        outcome.coverage.invariants["same_again"] += 1
        if again != digest:
            failure = history.Failure("same_again", "a second run sent something else", num_events)
    if failure is not None:
        outcome.failures.append((seed, failure))


def run_chunk(first: int, num_seeds: int, num_events: int) -> Outcome:
    """Run seeds one after the other."""
    logging.disable(logging.CRITICAL)
    outcome = Outcome()
    for seed in range(first, first + num_seeds):
        run_seed(seed, outcome, num_events)
    return outcome


def run_seeds(first: int, num_seeds: int, num_jobs: int, num_events: int) -> Outcome:
    """Run seeds in `num_jobs` processes."""
    total = Outcome()
    starts = range(first, first + num_seeds, CHUNK)
    sizes = [min(CHUNK, first + num_seeds - start) for start in starts]
    lengths = [num_events] * len(sizes)
    if num_jobs == 1:
        parts = map(run_chunk, starts, sizes, lengths)
        return _sum(total, parts, num_seeds)
    with ProcessPoolExecutor(num_jobs) as pool:
        return _sum(total, pool.map(run_chunk, starts, sizes, lengths), num_seeds)


def _sum(total: Outcome, parts: Iterable[Outcome], num_seeds: int) -> Outcome:
    started, num_done = time.monotonic(), 0
    for part in parts:
        total.coverage.add(part.coverage)
        total.failures.extend(part.failures)
        num_done += CHUNK
        if num_done % (50 * CHUNK) == 0:
            seconds = time.monotonic() - started
            print(f"  {num_done} of {num_seeds} seeds, {seconds:.0f} s", file=sys.stderr)
    return total


def missing(coverage: Coverage, least: float) -> list[str]:
    """Return what was exercised less than `least` times."""
    wanted = [(coverage.events, kind) for kind in WEIGHTS]
    wanted += [(coverage.moves, move) for move in reachable_moves()]
    wanted += [(coverage.invariants, name) for name in INVARIANTS]
    return [f"{name}: {counts[name]}" for counts, name in wanted if counts[name] < least]


def print_tables(coverage: Coverage) -> None:
    """Show all counts."""
    moves = {move: coverage.moves[move] for move in reachable_moves()}
    tables = {
        "events": {kind: coverage.events[kind] for kind in WEIGHTS},
        "moves": moves,
        "invariants": {name: coverage.invariants[name] for name in INVARIANTS},
        "facts": dict(sorted(coverage.facts.items())),
        "peaks": dict(sorted(coverage.peaks.items())),
    }
    for title, counts in tables.items():
        print(f"\n{title}")
        for name, count in counts.items():
            print(f"  {count:>12,}  {name}")
    if later_moves():
        print("\nmoves that a later issue makes reachable")
    for move in later_moves():
        print(f"                {move}")


def explain(seed: int, failure: history.Failure, num_events: int) -> None:
    """Show how to run a failing seed again, made small."""
    print(f"\nseed {seed} fails at event {failure.event_number}: {failure.detail}")
    configuration = history.configuration_of(seed)
    events = history.events_of(seed, num_events)[: failure.event_number + 1]
    events = shrink.shrink(configuration, events, failure.invariant)
    path = shrink.SEEDS / f"{failure.invariant}_{seed}.json"
    shrink.save(path, configuration, events, failure.detail)
    print(f"{len(events)} events do: cd tests && python -m simulation.run --replay {path}")


def replay(path: Path) -> int:
    """Run a fixture; 1 when it fails."""
    configuration, events, note = shrink.load(path)
    failure, _ = history.run(configuration, events, Coverage())
    print(f"{len(events)} events, once: {note}")
    print(f"now: {failure.detail if failure else 'clean'}")
    return int(failure is not None)


def main() -> int:
    """Run what the command line says; 1 when anything failed or was not exercised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--events", type=int, default=history.NUM_EVENTS)
    parser.add_argument("--replay", type=Path)
    options = parser.parse_args()
    if options.replay is not None:
        return replay(options.replay)
    started = time.monotonic()
    outcome = run_seeds(options.first, options.seeds, options.jobs, options.events)
    print_tables(outcome.coverage)
    few = missing(outcome.coverage, options.seeds / 10)
    for name in few:
        print(f"exercised too rarely: {name}")
    for seed, failure in outcome.failures[:3]:
        explain(seed, failure, options.events)
    seconds = time.monotonic() - started
    print(
        f"\n{options.seeds} seeds of {options.events} events in {seconds:.0f} s: "
        f"{len(outcome.failures)} failed"
    )
    for seed, failure in outcome.failures[3:]:
        print(f"  {seed}: {failure.detail[:100]}")
    return int(bool(outcome.failures or few))


if __name__ == "__main__":
    sys.exit(main())
