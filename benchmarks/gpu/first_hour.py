"""Everything of the CUDA path that has never run on a device, in the order of its value.

    python benchmarks/gpu/first_hour.py --out DIR
    python benchmarks/gpu/first_hour.py --out DIR --state EARLIER/state.jsonl
    python benchmarks/gpu/first_hour.py --rehearse --out DIR
    python benchmarks/gpu/first_hour.py --plan
    python benchmarks/gpu/first_hour.py --fill --state DIR/state.jsonl

Runs one process per item and writes DIR/state.jsonl after each, with report.md and report.json. Run
it again with the same DIR, and it goes on where it was; a machine that begins bare gets the earlier
state by --state, and the compiled kernels from triton-cache.tar.gz beside it. A call ends after
--minutes, or when the device is lost. Needs only the standard library; what an item needs and this
Python does not have is named in the report, and may come from --packages.
"""

import argparse
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from hour import kernel_cache, report
from hour.call import Budget, run_call
from hour.fill import filled_page
from hour.findings import findings
from hour.machine import ROOT, Machine, predictions, rehearsal_of
from hour.plan import ITEMS, plan_table
from hour.state import PASSED, State

DOCS = ROOT / "docs" / "gpu-checks.md"
SCRATCH = ROOT / "build" / "first-hour"
STATE = "state.jsonl"
NO_LIMIT = 24 * 3600.0


def parse() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--rehearse", action="store_true", help="all toys, on a CPU, interpreted")
    mode.add_argument("--plan", action="store_true", help="print the plan and run nothing")
    mode.add_argument("--fill", action="store_true", help="rewrite --docs from --state")
    parser.add_argument("--out", type=Path, help="folder of state and reports")
    parser.add_argument("--state", type=Path, help="of earlier calls, where --out has none")
    parser.add_argument("--minutes", type=float, default=9.5, help="of this call (9.5)")
    parser.add_argument("--all-minutes", type=float, default=30.0, help="of all calls (30)")
    parser.add_argument("--cache", type=Path, default=SCRATCH / "triton", help="of kernels")
    parser.add_argument("--scratch", type=Path, default=SCRATCH, help="for what items write")
    parser.add_argument(
        "--packages", type=Path, nargs="*", default=[], help="folders with modules lacking here"
    )
    parser.add_argument("--predictions", type=Path, help="JSON of predict.py")
    parser.add_argument("--keep-kib", type=int, default=24, help="of an item's output (24)")
    parser.add_argument("--docs", type=Path, default=DOCS, help="page that --fill rewrites")
    arguments = parser.parse_args()
    if arguments.out is None and not (arguments.plan or arguments.fill):
        parser.error("--out is needed, unless with --plan or --fill")
    for name in ("minutes", "all_minutes", "keep_kib"):
        if getattr(arguments, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be more than 0")
    if arguments.state is not None and not arguments.state.exists():
        parser.error(f"--state: there is no {arguments.state}")
    return arguments


def fill(arguments: argparse.Namespace) -> int:
    """Rewrite the page of checks."""
    if arguments.state is None:
        facts = State(Path("/dev/null")).facts
    else:
        facts = State(arguments.state).facts
    found = predictions(arguments.predictions, SCRATCH) if arguments.predictions else {}
    page = filled_page(arguments.docs.read_text(), ITEMS, facts, found)
    arguments.docs.write_text(page)
    print(f"{arguments.docs}: {len(facts.ends)} items")
    return 0


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def prepared(arguments: argparse.Namespace, out: Path) -> tuple[State, Machine]:
    """Return the state so far and this machine; folders are made, kernels unpacked."""
    for folder in (out, arguments.scratch, arguments.cache):
        folder.mkdir(parents=True, exist_ok=True)
    archives = [out / kernel_cache.NAME]
    if arguments.state is not None:
        archives.append(arguments.state.parent / kernel_cache.NAME)
        if not (out / STATE).exists():
            shutil.copyfile(arguments.state, out / STATE)
    if not arguments.rehearse:
        for archive in archives:
            kernel_cache.unpack(archive, arguments.cache)
    machine = Machine(
        scratch=arguments.scratch.resolve(),
        cache=arguments.cache.resolve(),
        packages=[path.resolve() for path in arguments.packages],
        num_kept=arguments.keep_kib * 1024,
        is_rehearsal=arguments.rehearse,
    )
    return State(out / STATE), machine


def run(arguments: argparse.Namespace) -> int:
    """Run one call; the exit code is 1 where an item did not pass."""
    began = time.monotonic()
    out: Path = arguments.out.resolve()
    is_toy: bool = arguments.rehearse
    state, machine = prepared(arguments, out)
    items = rehearsal_of(ITEMS) if is_toy else ITEMS
    minutes = (NO_LIMIT, NO_LIMIT) if is_toy else (arguments.minutes, arguments.all_minutes)
    known = {} if is_toy else predictions(arguments.predictions, out)

    def after_item() -> None:
        report.write(out, ITEMS, state.facts, known, is_toy=is_toy)
        last = state.records[-1]
        if last["event"] == "end":
            print(f"{last['item']}: {last['outcome']}, {last['seconds']:.0f} s", flush=True)

    # What was done until here is part of the call.
    seconds = 60 * minutes[0] - (time.monotonic() - began)
    why = run_call(
        items,
        state,
        Budget(call_seconds=seconds, all_seconds=60 * minutes[1]),
        machine,
        after_item=after_item,
        is_rehearsal=is_toy,
    )
    if not is_toy and not kernel_cache.pack(machine.cache, out / kernel_cache.NAME):
        print(f"{machine.cache} is too large to be packed")
    facts = state.facts
    bad = findings(ITEMS, facts)
    print(f"{why}; {len(bad)} items did not pass; {out / 'report.md'}")
    if is_toy:
        return int(any(facts.outcome(item.name) != PASSED for item in ITEMS))
    return int(bool(bad))


def main() -> None:
    """Do what the command line says."""
    arguments = parse()
    # What ends this process ends the item that runs; and no item leaves a core of many gigabytes.
    signal.signal(signal.SIGTERM, _end)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if arguments.plan:
        print(plan_table(), end="")
        return
    sys.exit(fill(arguments) if arguments.fill else run(arguments))


if __name__ == "__main__":
    main()
