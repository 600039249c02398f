"""`pagewire admin audit`: prints what a running deployment holds. Changes nothing."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict

from pagewire.admin_client import CellReport, audit
from pagewire.cli.actions import choose_action
from pagewire.cli.commands import EXIT_FAILED
from pagewire_shared.flags import HintingParser

_AUDIT_HELP = "walk the tables, pools, queues and slots of every process"


def run(name: str, argv: Sequence[str]) -> int:
    """Print the audit; 1 when it found something that should not be there."""
    action, rest = choose_action(name, argv, {"audit": _AUDIT_HELP})
    parser = HintingParser(prog=f"pagewire {name} {action}", description=_AUDIT_HELP)
    parser.add_argument("--server", required=True, help="gRPC address of a frontend or scheduler")
    parser.add_argument("--timeout-seconds", type=float, default=2.0, help="wait for peers (2)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(rest)
    cells = asyncio.run(audit(options.server, timeout_seconds=options.timeout_seconds))
    if options.json:
        print(json.dumps([asdict(cell) for cell in cells], indent=2))
    else:
        print("\n\n".join(describe(cell) for cell in cells))
    return EXIT_FAILED if any(cell.findings for cell in cells) else 0


def describe(cell: CellReport) -> str:
    """Return the report of one cell as text."""
    lines = [
        f"scheduler, generation {cell.generation}: {cell.num_requests} requests, "
        f"{cell.num_waiting} waiting, {cell.num_running} running"
    ]
    lines += [
        f"  pool of worker {p.worker[:8]}: {p.num_blocks} blocks, {p.num_held} held, "
        f"{p.num_cached} cached, {p.num_free} free, {p.num_slots} slots, "
        f"{p.num_steps_in_flight} steps in flight"
        for p in cell.pools
    ]
    lines += [
        f"worker {w.worker[:8]}: {w.num_slots} slots, {w.num_blocks_in_tables} blocks in tables, "
        f"{w.num_named_blocks} named, {w.num_steps_queued} steps queued"
        for w in cell.workers
    ]
    lines += [
        f"frontend {f.frontend[:8]}: {f.num_open_streams} open streams, {f.num_handles} handles"
        for f in cell.frontends
    ]
    lines += [f"FOUND {f.kind} in {f.process}: {f.detail}" for f in cell.findings]
    if not cell.findings:
        lines.append("idle: nothing is held" if cell.is_idle else "no contradictions")
    return "\n".join(lines)
