"""`make mutants`: plants one bug after the other, each in a process of its own, and lets the
simulation find it.

    python -m simulation.mutants [--jobs 2] [--seeds 300] [NAME ...]
"""

import argparse
import importlib.util
import json
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from simulation.mutant import Mutant
from simulation.mutant_list import MUTANTS

MAX_SEEDS = 300
MAX_SECONDS = 240.0
# Long enough for requests to wait, give way and return; short, since many seeds find more.
NUM_EVENTS = 160


class StaleMutantError(ValueError):
    """The text that a mutant replaces is not there any more."""


class _PatchedLoader(SourceFileLoader):
    """Compiles a module with its patches, past the cache of compiled files."""

    def __init__(self, name: str, path: str, patches: list[tuple[str, str]]) -> None:
        super().__init__(name, path)
        self._patches = patches

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text()
        for before, after in self._patches:
            if before not in text:
                raise StaleMutantError(f"{fullname} does not say {before!r}")
            text = text.replace(before, after)
        return compile(text, self.path, "exec", dont_inherit=True)


class _PatchingFinder(MetaPathFinder):
    """Finds the modules that a mutant changes."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patches = [(a, b) for module, a, b in self._mutant.patches if module == fullname]
        if not patches:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        loader = _PatchedLoader(fullname, spec.origin, patches)
        return importlib.util.spec_from_loader(fullname, loader)


def hunt(mutant: Mutant, max_seeds: int) -> dict[str, object]:
    """Plant `mutant` in this process, which must be fresh, and run seeds until one fails."""
    assert not any(name in sys.modules for name, _, _ in mutant.patches), "too late to plant"
    sys.meta_path.insert(0, _PatchingFinder(mutant))
    logging.disable(logging.CRITICAL)
    from simulation import history
    from simulation.coverage import Coverage

    started = time.monotonic()
    for seed in range(max_seeds):
        events = history.events_of(seed, NUM_EVENTS)
        failure, _ = history.run(history.configuration_of(seed), events, Coverage())
        if failure is not None:
            return {"seed": seed, "invariant": failure.invariant, "detail": failure.detail}
        if time.monotonic() - started > MAX_SECONDS:
            break
    return {"seed": None, "invariant": "", "detail": f"survived {seed + 1} seeds"}


def hunt_apart(mutant: Mutant, max_seeds: int) -> dict[str, object]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "simulation.mutants", "--one", mutant.name]
    result = subprocess.run(
        [*command, "--seeds", str(max_seeds)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )
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
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    if options.one:
        print(json.dumps(hunt(by_name[options.one], options.seeds)))
        return 0
    chosen = [by_name[name] for name in options.names] or MUTANTS
    print(f"{'mutant':<32} {'seed':>5}  {'caught by':<32} what it does")
    survivors = []
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = pool.map(hunt_apart, chosen, [options.seeds] * len(chosen))
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
