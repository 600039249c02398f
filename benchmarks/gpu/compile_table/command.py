"""The command: compiles, prints, compares."""

import argparse
import difflib
import os
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from compile_table.occupancy import MULTIPROCESSORS
from compile_table.page import page
from compile_table.rows import Row, in_order, markdown


def compiled_rows(capability: int, group: int, kernels: Collection[str] | None) -> dict[str, Row]:
    """Return the rows of a group of variants, by the hash of what was compiled."""
    # Here, since what is compiled imports torch.
    from compile_table.launches import Compiler
    from compile_table.variants import groups

    compiler = Compiler(capability, kernels)
    rows: dict[str, Row] = {}
    for variant in groups()[group]:
        if capability >= variant.least_capability:
            for launch in compiler.launches_of(variant.launch):
                rows.setdefault(launch.compiled.hash, Row.of(capability, variant.name, launch))
    return rows


def all_rows(
    capabilities: Collection[int], kernels: Collection[str] | None, jobs: int
) -> list[Row]:
    """Return the rows of all variants, compiled by so many processes."""
    from compile_table.variants import groups

    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        pending = [
            pool.submit(compiled_rows, capability, group, kernels)
            for group in range(len(groups()))
            for capability in capabilities
        ]
        rows: dict[str, Row] = {}
        for one in pending:
            rows = one.result() | rows
        return in_order(rows.values())


def main(description: str) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--capabilities", type=int, nargs="+", choices=MULTIPROCESSORS)
    parser.add_argument("--kernels", nargs="+", help="names, such as attend_tiles; all by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--output", type=Path, help="write the page of the docs there")
    parser.add_argument("--check", type=Path, help="fail where that page says something else")
    arguments = parser.parse_args()
    is_whole = not arguments.capabilities and not arguments.kernels
    if not is_whole and (arguments.output or arguments.check):
        parser.error("--output and --check are about the whole table")
    capabilities = arguments.capabilities or list(MULTIPROCESSORS)
    rows = all_rows(capabilities, arguments.kernels, arguments.jobs)
    print(markdown(rows))
    if arguments.output:
        arguments.output.write_text(page(rows))
    faults = [row.fault for row in rows if row.fault]
    if arguments.check:
        faults += _differences(arguments.check, page(rows))
    if faults:
        raise SystemExit("\n".join(faults))


def _differences(path: Path, made: str) -> list[str]:
    lines = path.read_text().splitlines(), made.splitlines()
    return list(difflib.unified_diff(*lines, str(path), "compiled now", n=0, lineterm=""))
