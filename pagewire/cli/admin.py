"""`pagewire admin`: audits a running deployment and resets its prefix cache.

Actions about workers are in operators/; servers do the work.
"""

import asyncio
import os
from collections.abc import Callable, Sequence

from pagewire.cli.commands import EXIT_FAILED, choose_action, print_cells, waiting_seconds
from pagewire.cli.operators.inspection import run_profile, run_stacks
from pagewire.cli.operators.topology import (
    run_roles,
    run_self_test,
    run_sleep,
    run_topology,
    run_update_weights,
    run_wake,
)
from pagewire.client.admin_client import CacheGroupReport, CellReport, audit, reset_prefix_cache
from pagewire_shared.process.flags import HintingParser
from pagewire_shared.rpc import links

_AUDIT = "audit"
_RESET = "reset-prefix-cache"
_TOPOLOGY = "topology"
_ROLES = "roles"
_SELF_TEST = "selftest"
_SLEEP = "sleep"
_WAKE = "wake"
_UPDATE = "update-weights"
_PROFILE = "profile"
_STACKS = "stacks"
_ACTIONS = {
    _AUDIT: "walk the tables, pools, queues and slots of every process",
    _RESET: "forget cached prefixes, so that new requests compute theirs again",
    _TOPOLOGY: "show the workers, and between which of them KV blocks move, and why not",
    _ROLES: "change what a worker is used for: prompts (prefill), tokens (decode) or both",
    _SELF_TEST: "move KV blocks between all pairs of workers and compare the bytes",
    _SLEEP: "let workers give their memory back",
    _WAKE: "let workers make their memory anew",
    _UPDATE: "give the workers of a model other weights",
    _PROFILE: "write a trace of the next steps of a worker, for Perfetto or Chrome",
    _STACKS: "show where the code of every process is: its threads and its tasks",
}
DEFAULT_SERVER = "127.0.0.1:8000"
"""Default address of `pagewire serve`."""


def run(name: str, argv: Sequence[str]) -> int:
    """Run one action and return the exit status. Raises PagewireError without an answer."""
    action, rest = choose_action(name, argv, _ACTIONS)
    parser = HintingParser(prog=f"pagewire {name} {action}", description=_ACTIONS[action])
    add_server_flags(parser)
    return _RUN[action](parser, rest)


def add_server_flags(parser: HintingParser) -> None:
    """Add the flags that say which process is asked, and with which key."""
    parser.add_argument(
        "--server",
        default=DEFAULT_SERVER,
        help="a frontend, by either of its ports or its URL (https for TLS, with authorities of"
        f" PAGEWIRE_SERVER_CA), or a scheduler ({DEFAULT_SERVER})",
    )
    parser.add_argument(
        "--server-api-key",
        metavar="KEY",
        default=os.environ.get("PAGEWIRE_SERVER_API_KEY"),
        help="for a frontend that wants one (PAGEWIRE_SERVER_API_KEY)",
    )
    parser.add_argument(
        "--tls-dir",
        metavar="DIR",
        type=links.use_folder,
        help="folder of an operator's certificate, for a scheduler with --tls-dir",
    )


def _audit(parser: HintingParser, argv: Sequence[str]) -> int:
    """Print the audit; return 1 when it has findings."""
    parser.add_argument(
        "--timeout-seconds", type=waiting_seconds, default=2.0, help="wait for peers (2)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    asked = audit(
        options.server, timeout_seconds=options.timeout_seconds, api_key=options.server_api_key
    )
    cells = asyncio.run(asked)
    print_cells(cells, describe, as_json=options.json)
    return EXIT_FAILED if any(cell.findings for cell in cells) else 0


def _reset_prefix_cache(parser: HintingParser, argv: Sequence[str]) -> int:
    """Reset the prefix cache of every cell, and print the number of blocks."""
    parser.add_argument("--model", metavar="NAME", help="served name (default: all models)")
    options = parser.parse_args(argv)
    asked = reset_prefix_cache(options.server, model=options.model, api_key=options.server_api_key)
    num_blocks = asyncio.run(asked)
    print(f"forgot {num_blocks} cached {'block' if num_blocks == 1 else 'blocks'}")
    return 0


_RUN: dict[str, Callable[[HintingParser, Sequence[str]], int]] = {
    _AUDIT: _audit,
    _RESET: _reset_prefix_cache,
    _TOPOLOGY: run_topology,
    _ROLES: run_roles,
    _SELF_TEST: run_self_test,
    _SLEEP: run_sleep,
    _WAKE: run_wake,
    _UPDATE: run_update_weights,
    _PROFILE: run_profile,
    _STACKS: run_stacks,
}


def _group_line(group: CacheGroupReport) -> str:
    reads = "all positions" if group.window is None else f"a window of {group.window}"
    held = f"{group.num_held} blocks in tables, at most {group.most_held} of one sequence"
    return f"\n    group with {reads}: {held}"


def describe(cell: CellReport) -> str:
    """Return the report of one cell as text."""
    lines = [
        f"scheduler, generation {cell.generation}: {cell.num_requests} requests, "
        f"{cell.num_waiting} waiting, {cell.num_running} running"
    ]
    lines += [
        f"  pool of worker {p.worker[:8]}: {p.num_blocks} blocks, {p.num_held} held, "
        f"{p.num_cached} cached, {p.num_free} free, {p.num_slots} slots, "
        f"{p.num_steps_in_flight} steps in flight" + "".join(map(_group_line, p.groups))
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
