"""Injects faults, adds what came of them to a file, and prints the table of all runs.

    cd tests && python -m chaos --faults 200 --seed 1

The same seed gives the same faults, in the same order; with --fill, for the same file. A run that
is ended early keeps what it has.
"""

import argparse
import asyncio
import datetime
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pagewire
from chaos.clients import Clients
from chaos.deployment import FLAVOURS, deployed
from chaos.faults import CELLS
from chaos.outcomes import Cell, Outcomes, read_outcomes, table, write_outcomes
from chaos.run import Run

OUTCOMES = Path(__file__).with_name("outcomes.json")


def drawn(
    cells: list[Cell], count: int, dice: random.Random, tried: Mapping[Cell, int] | None = None
) -> list[Cell]:
    """Return faults in random order, of each cell equally many, give or take one; those of which
    `tried` has the fewest come first, until all have equally many."""
    order: list[Cell] = []
    planned = Counter(tried or {})
    while len(order) < count:
        least = min(planned[cell] for cell in cells)
        fewest = [cell for cell in cells if planned[cell] == least]
        chosen = dice.sample(fewest, len(fewest))
        order += chosen
        planned.update(chosen)
    return order[:count]


async def run_faults(given: argparse.Namespace, cells: list[Cell], outcomes: Outcomes) -> list[str]:
    """Inject faults into a deployment; return what went wrong."""
    dice = random.Random(given.seed)
    with (
        tempfile.TemporaryDirectory() as folder,
        deployed(Path(folder), given.flavour) as deployment,
    ):
        cluster = deployment.cluster
        async with Clients(cluster.http_url, cluster.local.grpc_address, cluster.model) as clients:
            run = Run(deployment, outcomes, dice, clients)
            try:
                tried = {cell: one.faults for cell, one in outcomes.cells.items()}
                order = drawn(cells, given.faults, dice, tried if given.fill else None)
                await run.inject(order)
            except TimeoutError as error:
                run.problems.append(f"{run._cell}: nothing moves any more: {error!r}")
        if given.log:
            given.log.write_text(cluster.log)
        return run.problems


def main() -> None:
    """The status is 0 when no stream was hurt."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--faults", type=int, default=len(CELLS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flavour", choices=list(FLAVOURS), default="plain")
    parser.add_argument("--only", default="", help="faults whose cell has this text")
    parser.add_argument(
        "--fill", action="store_true", help="first the cells of which the file has the fewest"
    )
    parser.add_argument("--outcomes", type=Path, default=OUTCOMES)
    parser.add_argument("--log", type=Path, help="file for what the processes write")
    parser.add_argument("--table", action="store_true", help="only print the table")
    given = parser.parse_args()
    # A run that is ended early adds what it has.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcomes = read_outcomes(given.outcomes)
    if given.table:
        print(table(outcomes))
        return
    cells = [cell for cell in CELLS if given.only in " ".join(cell)]
    num_before, began = sum(one.faults for one in outcomes.cells.values()), time.monotonic()
    problems: list[str] = []
    try:
        problems = asyncio.run(run_faults(given, cells, outcomes))
    finally:
        num_faults = sum(one.faults for one in outcomes.cells.values()) - num_before
        outcomes.runs.append(
            {
                "date": datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d"),
                "version": pagewire.__version__,
                "flavour": given.flavour,
                "only": given.only,
                "seed": given.seed,
                "faults": num_faults,
                "problems": len(problems),
            }
        )
        write_outcomes(given.outcomes, outcomes)
    print(table(outcomes))
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{num_faults} faults in {time.monotonic() - began:.0f} s, {len(problems)} problems")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
