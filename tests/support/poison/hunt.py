"""Plants the bugs of `support.poison.planted`, each in a process of its own, and runs the tests
that must find it: all of them after what takes long has been imported once.

    python -m support.poison.hunt [--plain] [NAME ...]

`--plain` runs them with PAGEWIRE_POISON=0 as well, to see what finds the bug without. Run in
`tests`, as `make mutants` does.
"""

import argparse
import json
import linecache
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module, util
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest
from simulation.mutants import StaleMutantError
from simulation.planted.mutant import Mutant

from support.poison.planted import PLANTED, WORKER

SECONDS = 120
"""Of one bug's tests, on a busy machine, too."""
NO_RUN = 99
"""How a process ends that could not begin."""
_FIRST = ("numpy", "torch", "triton", "triton.runtime.interpreter", "transformers")
"""Imported once, before processes part."""


class _PatchedLoader(SourceFileLoader):
    """Compiles a module with its patches; who asks for its source, as Triton does, gets them."""

    def __init__(self, name: str, path: str, patches: Sequence[tuple[str, str]]) -> None:
        super().__init__(name, path)
        self._patches = patches

    def get_code(self, fullname: str) -> CodeType:
        text = patched(fullname, self.path, self._patches)
        linecache.cache[self.path] = (len(text), None, text.splitlines(keepends=True), self.path)
        return compile(text, self.path, "exec", dont_inherit=True)


def patched(name: str, path: str, patches: Sequence[tuple[str, str]]) -> str:
    """Return the text of a module with its patches, each of which must be about one place."""
    text = Path(path).read_text()
    for before, after in patches:
        if text.count(before) != 1:
            raise StaleMutantError(f"{name} says {text.count(before)} times {before!r}")
        text = text.replace(before, after)
    return text


class _PatchingFinder(MetaPathFinder):
    """Finds the modules that a bug is planted in."""

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
        return util.spec_from_loader(fullname, _PatchedLoader(fullname, spec.origin, patches))


def _run(mutant: Mutant, is_poisoned: bool) -> tuple[bool, str]:
    """Run the tests of `mutant` in a process of its own; return whether one fails, and how."""
    with tempfile.TemporaryFile("w+") as log:
        child = os.fork()
        if child == 0:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            code = NO_RUN
            try:
                code = _run_here(mutant, is_poisoned)
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        log.seek(0)
        lines = log.read().splitlines()
    code = os.waitstatus_to_exitcode(status)
    errors = [line[2:].strip() for line in lines if line.startswith("E  ")]
    stale = [line for line in errors + lines if StaleMutantError.__name__ in line]
    if stale:
        raise StaleMutantError(f"{mutant.name}: {stale[0]}")
    if code == pytest.ExitCode.OK:
        return False, "survived"
    # A test that cannot begin finds nothing.
    if code == pytest.ExitCode.TESTS_FAILED and any(line.startswith("FAILED ") for line in lines):
        return True, errors[0]
    if code in (-signal.SIGALRM, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS):
        return True, signal.Signals(-code).name
    raise RuntimeError(f"{mutant.name}: pytest ends with {code}: {lines[-5:]}")


def _run_here(mutant: Mutant, is_poisoned: bool) -> int:
    os.environ["PAGEWIRE_POISON"] = str(int(is_poisoned))
    assert not any(name.startswith(WORKER) for name in sys.modules), "too late to plant"
    sys.meta_path.insert(0, _PatchingFinder(mutant))
    signal.alarm(SECONDS)
    flags = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
    known = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return int(pytest.main([*sorted(mutant.caught_by), *flags, *known]))


def main() -> int:
    """Plant what the command line names, or all; 1 when one survives the poisoned suite."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("TRITON_INTERPRET", "1")
    for name in _FIRST:
        import_module(name)
    by_name = {mutant.name: mutant for mutant in PLANTED}
    chosen = [by_name[name] for name in options.names] or PLANTED
    tests = frozenset(test for mutant in chosen for test in mutant.caught_by)
    # Without a bug they pass, or finding one means nothing.
    is_found, how = _run(Mutant("nothing", "No bug at all.", (), tests), True)
    if is_found:
        raise RuntimeError(f"a test fails without any bug: {how}")
    found = {mutant.name: _run(mutant, True) for mutant in chosen}
    plain = {mutant.name: _run(mutant, False)[0] for mutant in chosen} if options.plain else {}
    if options.json:
        print(json.dumps(found))
        return 0
    for mutant in chosen:
        is_found, how = found[mutant.name]
        alone = {True: "found", False: "missed", None: ""}[plain.get(mutant.name)]
        print(f"{mutant.name:<26} {'found' if is_found else 'ALIVE':<6} {alone:<7} {how[:150]}")
    survivors = sum(not is_found for is_found, _ in found.values())
    print(f"\n{len(chosen) - survivors} of {len(chosen)} bugs found")
    return int(survivors > 0)


def hunt_apart(names: Sequence[str] = ()) -> dict[str, tuple[bool, str]]:
    """Plant those named, or all, in processes apart from this one; return by name whether each is
    found, and how."""
    command = [sys.executable, "-m", "support.poison.hunt", "--json", *names]
    folder = Path(__file__).parents[2]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert result.returncode == 0, result.stderr
    outcome: dict[str, tuple[bool, str]] = json.loads(result.stdout.strip().splitlines()[-1])
    return outcome


if __name__ == "__main__":
    sys.exit(main())
