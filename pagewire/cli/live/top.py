"""`pagewire top`: shows workers, queues, KV blocks and streams of a deployment, again and again."""

import argparse
import asyncio
import time
from collections.abc import Sequence

from pagewire.cli.admin import add_server_flags
from pagewire.cli.commands import print_cells, waiting_seconds
from pagewire.cli.live.overview import CellOverview, TierOverview, WorkerOverview, overview
from pagewire.client.topology_client import ModelFacts
from pagewire_shared.errors import UnavailableError
from pagewire_shared.identity.ids import SHOWN_DIGITS
from pagewire_shared.process.flags import HintingParser

_CLEAR = "\x1b[H\x1b[2J"
_TIER_HEAD = ("KV tier", "store", "blocks", "full")
_HEAD = (
    *("worker", "model", "roles", "memory", "running", "waiting", "slots"),
    *("KV used", "cached", "free", "steps"),
)


def run(name: str, argv: Sequence[str]) -> int:
    """Show the deployment until Ctrl-C, or once."""
    parser = HintingParser(
        prog=f"pagewire {name}",
        description="Show workers, queues, KV blocks and streams of a running deployment.",
    )
    _add_flags(parser)
    options = parser.parse_args(argv)
    if options.once or options.json:
        cells = asyncio.run(overview(options.server, api_key=options.server_api_key))
        print_cells(cells, describe, as_json=options.json)
        return 0
    while True:
        print(f"{_CLEAR}{_frame(options)}", flush=True)
        time.sleep(options.seconds)


def _add_flags(parser: HintingParser) -> None:
    add_server_flags(parser)
    parser.add_argument("--once", action="store_true", help="show it once and end")
    parser.add_argument("--json", action="store_true", help="print JSON, once")
    parser.add_argument(
        "--seconds", type=waiting_seconds, default=1.0, help="between two looks (1)"
    )


def _frame(options: argparse.Namespace) -> str:
    """Return what to show now; a deployment that does not answer is no reason to end."""
    try:
        cells = asyncio.run(overview(options.server, api_key=options.server_api_key))
    except UnavailableError as error:
        return f"{options.server} does not answer: {error.message}"
    return "\n\n".join(map(describe, cells))


def describe(cell: CellOverview) -> str:
    """Return one cell as text."""
    lines = [
        f"scheduler, generation {cell.generation}: {cell.num_requests} requests, "
        f"{cell.num_running} sequences running, {cell.num_waiting} waiting"
    ]
    lines += [f"  {one.state} scheduler at {one.address}" for one in cell.schedulers]
    lines += _table([_HEAD, *map(_row, cell.workers)])
    lines += _table([_TIER_HEAD, *map(_tier_row, cell.tiers)])
    lines += [f"  {line}" for model in cell.models for line in _model_lines(model)]
    if cell.num_resumed:
        lines.append(f"  {cell.num_resumed} requests went on after a scheduler was lost")
    lines += [
        f"  frontend {one.frontend[:SHOWN_DIGITS]}: {one.num_open_streams} open streams"
        for one in cell.frontends
    ]
    return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in cell.problems)])


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _tier_row(tier: TierOverview) -> tuple[str, ...]:
    full = "-" if tier.share is None else f"{tier.share:.0%}"
    if tier.fault is not None:
        full += f" {tier.fault}"
    return tier.tier, tier.store or "-", str(tier.num_blocks), full


def _model_lines(model: ModelFacts) -> list[str]:
    """Return what the caches of a model had, and which faults it survived."""
    found = {tier: count for tier, count in model.found_tokens.items() if count}
    num_found, num_asked = sum(found.values()), model.num_queried_tokens
    line = f"{model.model}: {num_found} of {num_asked} prompt tokens found in caches"
    if found:
        by_tier = ", ".join(f"{count} in {tier}" for tier, count in found.items())
        line += f" ({num_found / max(1, num_asked):.0%}): {by_tier}"
    return [
        line,
        f"{model.model}: {model.num_lost_workers} workers lost,"
        f" {model.num_requeued_sequences} sequences went on elsewhere,"
        f" {model.num_preemptions} preempted",
    ]


def _row(worker: WorkerOverview) -> tuple[str, ...]:
    facts, pool = worker.facts, worker.pool
    memory = "draining" if facts.is_draining else facts.memory
    blocks: tuple[str, ...] = ("-",) * 4
    if pool is not None:
        numbers = (pool.num_held, pool.num_cached, pool.num_free, pool.num_steps_in_flight)
        blocks = tuple(map(str, numbers))
    return (
        facts.worker[:SHOWN_DIGITS],
        facts.model,
        ",".join(facts.roles),
        memory,
        str(facts.num_running),
        str(facts.num_waiting),
        str(facts.max_num_seqs),
        *blocks,
    )
