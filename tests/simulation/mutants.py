"""`make mutants`: plants one bug after the other, each in a process of its own, and lets the
simulation find it: one of the invariants that the bug was planted for must fail. The asserts and
the audit of the product are left out: they would be first, and show nothing of the simulation.

    python -m simulation.mutants [--jobs 2] [--seeds 1000] [NAME ...]
"""

import argparse
import importlib
import importlib.util
import json
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from simulation.planted.mutant import CORE, FRONTEND, Mutant
from simulation.planted.mutant_list import MUTANTS

MAX_SEEDS = 1000
MAX_SECONDS = 240.0
"""After which no more seeds are begun."""
GRACE_SECONDS = 60.0
"""For the last seed, on a machine that has other work, too."""
# Long enough for requests to wait, give way and return; short, since many seeds find more.
NUM_EVENTS = 160


PRODUCT = (CORE, FRONTEND)


class StaleMutantError(ValueError):
    """The text that a mutant replaces is not there any more, or more than once."""


class _PatchedLoader(SourceFileLoader):
    """Compiles a module with its patches and without asserts, past the cache of compiled files."""

    def __init__(self, name: str, path: str, patches: list[tuple[str, str]]) -> None:
        super().__init__(name, path)
        self._patches = patches

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text()
        for before, after in self._patches:
            if text.count(before) != 1:
                raise StaleMutantError(f"{fullname} says {text.count(before)} times {before!r}")
            text = text.replace(before, after)
        return compile(text, self.path, "exec", dont_inherit=True, optimize=1)


class _PatchingFinder(MetaPathFinder):
    """Finds the modules of the product, and changes those that a mutant names."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(PRODUCT):
            return None
        patches = [(a, b) for module, a, b in self._mutant.patches if module == fullname]
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        loader = _PatchedLoader(fullname, spec.origin, patches)
        return importlib.util.spec_from_loader(fullname, loader)


def hunt(mutant: Mutant, max_seeds: int, max_seconds: float = MAX_SECONDS) -> dict[str, object]:
    """Plant `mutant` in this process, which must be fresh, and run seeds until one fails."""
    assert not any(name in sys.modules for name, _, _ in mutant.patches), "too late to plant"
    sys.meta_path.insert(0, _PatchingFinder(mutant))
    logging.disable(logging.CRITICAL)
    from simulation.checks import invariants
    from simulation.coverage import Coverage

    history = importlib.import_module(mutant.histories)
    invariants.books_agree = lambda cell, coverage: None
    started = time.monotonic()
    others: Counter[str] = Counter()
    for seed in range(max_seeds):
        events = history.events_of(seed, NUM_EVENTS)
        failure, _ = history.run(history.configuration_of(seed), events, Coverage())
        if failure is not None and failure.invariant in mutant.caught_by:
            return {"seed": seed, "invariant": failure.invariant, "detail": failure.detail}
        if failure is not None:
            others[failure.invariant] += 1
        if time.monotonic() - started > max_seconds:
            break
    detail = f"survived {seed + 1} seeds; others: {dict(others)}"
    return {"seed": None, "invariant": "", "detail": detail}


def hunt_apart(
    mutant: Mutant, max_seeds: int, max_seconds: float = MAX_SECONDS
) -> dict[str, object]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "simulation.mutants", "--one", mutant.name]
    try:
        result = subprocess.run(
            [*command, "--seeds", str(max_seeds), "--seconds", str(max_seconds)],
            capture_output=True,
            text=True,
            check=False,
            timeout=max_seconds + GRACE_SECONDS,
            cwd=Path(__file__).parents[1],
        )
    except subprocess.TimeoutExpired:
        return {"seed": None, "invariant": "", "detail": "a seed does not come to its end"}
    if result.returncode != 0:
        last = result.stderr.strip().splitlines()[-1:]
        return {"seed": None, "invariant": "", "detail": f"stale: {last}"}
    outcome: dict[str, object] = json.loads(result.stdout.strip().splitlines()[-1])
    return outcome


def print_row(mutant: Mutant, outcome: dict[str, object]) -> None:
    """One line of the table."""
    seed = "-" if outcome["seed"] is None else outcome["seed"]
    caught = outcome["invariant"] or outcome["detail"]
    print(f"{mutant.name:<32} {seed:>5}  {caught:<32} {mutant.sentence}", flush=True)


def main() -> int:
    """Hunt what the command line names, or all; 1 when one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--one")
    parser.add_argument("--seeds", type=int, default=MAX_SEEDS)
    parser.add_argument("--seconds", type=float, default=MAX_SECONDS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    if options.one:
        print(json.dumps(hunt(by_name[options.one], options.seeds, options.seconds)))
        return 0
    chosen = [by_name[name] for name in options.names] or MUTANTS
    print(f"{'mutant':<32} {'seed':>5}  {'caught by':<32} what it does")
    survivors = []
    with ThreadPoolExecutor(options.jobs) as pool:
        limits = [[limit] * len(chosen) for limit in (options.seeds, options.seconds)]
        outcomes = pool.map(hunt_apart, chosen, *limits)
        for mutant, outcome in zip(chosen, outcomes, strict=True):
            print_row(mutant, outcome)
            if outcome["seed"] is None:
                survivors.append(mutant.name)
    print(f"\n{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    for name in survivors:
        print(f"  alive: {name}")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
