"""`pagewire admin topology`, `roles`, `selftest`, `sleep`, `wake` and `update-weights`: shows the
workers of a deployment, sets their roles, tests the transfer of KV blocks between them, takes and
gives their memory, and exchanges their weights."""

import argparse
import asyncio
from collections.abc import Sequence

from pagewire.cli.commands import EXIT_FAILED, print_cells, waiting_seconds
from pagewire.client.sleep_client import SLEEP_SECONDS, WAKE_SECONDS, sleep, wake_up
from pagewire.client.topology_client import (
    ROLES,
    CellSelfTest,
    CellTopology,
    ProbeFacts,
    WorkerFacts,
    self_test,
    set_roles,
    topology,
)
from pagewire.client.weights_client import WAIT_SECONDS, update_weights
from pagewire_shared.identity.ids import SHOWN_DIGITS
from pagewire_shared.process.flags import HintingParser
from pagewire_shared.process.sizes import format_size
from pagewire_shared.sleep.state import LEVELS, MemoryTag, SleepMode, parse_tags
from pagewire_shared.weights.version import UpdateMode

_WORKER_HEAD = (
    *("worker", "model", "roles", "running", "waiting", "weights", "layout", "KV endpoint", ""),
)
_PAIR_HEAD = ("prefill", "decode", "transport", "MB/s", "transfers", "failures", "")
_STORE_HEAD = ("KV store", "state", "blocks", "share", "")
_PROBE_HEAD = ("prefill", "decode", "transport", "blocks", "bytes", "seconds", "")


def run_topology(parser: HintingParser, argv: Sequence[str]) -> int:
    """Print workers and pairs."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    cells = asyncio.run(topology(options.server, api_key=options.server_api_key))
    print_cells(cells, describe_topology, as_json=options.json)
    return 0


def run_roles(parser: HintingParser, argv: Sequence[str]) -> int:
    """Change the roles of one worker, and print its new roles."""
    parser.add_argument("worker", metavar="WORKER", help="its id, or the beginning of it")
    parser.add_argument(
        "roles", metavar="ROLES", type=_roles, help="all that it is used for: prefill, decode"
    )
    options = parser.parse_args(argv)
    asked = set_roles(options.server, options.worker, options.roles, api_key=options.server_api_key)
    worker = asyncio.run(asked)
    print(f"worker {_short(worker.worker)} is used for {', '.join(worker.roles)}")
    return 0


def run_self_test(parser: HintingParser, argv: Sequence[str]) -> int:
    """Probe every pair and print the results; return 1 when a probe found a problem."""
    parser.add_argument(
        "--timeout-seconds", type=waiting_seconds, default=10.0, help="for all of it (10)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    asked = self_test(
        options.server, timeout_seconds=options.timeout_seconds, api_key=options.server_api_key
    )
    cells = asyncio.run(asked)
    print_cells(cells, describe_self_test, as_json=options.json)
    return EXIT_FAILED if any(cell.problems for cell in cells) else 0


def run_sleep(parser: HintingParser, argv: Sequence[str]) -> int:
    """Let workers sleep, and print what they gave back."""
    parser.add_argument("--level", type=int, choices=LEVELS, default=1, help="how deep (1)")
    parser.add_argument(
        "--mode",
        choices=[mode.value for mode in SleepMode],
        default=SleepMode.KEEP.value,
        help="preempt the requests that run (keep), or let them end first (wait)",
    )
    _add_target(parser, SLEEP_SECONDS)
    options = parser.parse_args(argv)
    asked = sleep(
        options.server,
        level=options.level,
        mode=SleepMode(options.mode),
        model=options.model,
        worker=options.worker,
        timeout_seconds=options.timeout_seconds,
        api_key=options.server_api_key,
    )
    for worker in asyncio.run(asked):
        given = format_size(worker.sleep_num_bytes)
        print(f"worker {_short(worker.worker)} sleeps at level {worker.sleep_level}: {given} back")
    return 0


def run_wake(parser: HintingParser, argv: Sequence[str]) -> int:
    """Wake workers, and print their state."""
    parser.add_argument(
        "--tags",
        nargs="+",
        choices=[tag.value for tag in MemoryTag],
        default=[],
        help="parts to make anew (all)",
    )
    _add_target(parser, WAKE_SECONDS)
    options = parser.parse_args(argv)
    asked = wake_up(
        options.server,
        tags=parse_tags(options.tags),
        model=options.model,
        worker=options.worker,
        timeout_seconds=options.timeout_seconds,
        api_key=options.server_api_key,
    )
    for worker in asyncio.run(asked):
        print(f"worker {_short(worker.worker)} is {worker.memory}")
    return 0


def run_update_weights(parser: HintingParser, argv: Sequence[str]) -> int:
    """Exchange the weights of a model, and print what its workers have."""
    parser.add_argument(
        "path", metavar="PATH", help='folder on the workers\' hosts; "" for their first weights'
    )
    parser.add_argument("--version", default="", help="what answers call them (a fingerprint)")
    parser.add_argument(
        "--mode",
        choices=[mode.value for mode in UpdateMode],
        default=UpdateMode.WAIT.value,
        help="let requests that have begun run to their end (wait), or end them (abort)",
    )
    parser.add_argument("--model", metavar="NAME", help="served name (default: the only one)")
    parser.add_argument(
        "--timeout-seconds",
        type=waiting_seconds,
        default=WAIT_SECONDS,
        help=f"for requests that have begun ({WAIT_SECONDS:g})",
    )
    options = parser.parse_args(argv)
    asked = update_weights(
        options.server,
        options.path,
        version=options.version,
        mode=UpdateMode(options.mode),
        model=options.model,
        timeout_seconds=options.timeout_seconds,
        api_key=options.server_api_key,
    )
    for worker in asyncio.run(asked):
        print(f"worker {_short(worker.worker)} has weights {worker.weights_version}")
    return 0


def _add_target(parser: HintingParser, seconds: float) -> None:
    parser.add_argument("--model", metavar="NAME", help="served name (default: all models)")
    parser.add_argument("--worker", metavar="WORKER", help="its id, or the beginning of it")
    parser.add_argument(
        "--timeout-seconds", type=waiting_seconds, default=seconds, help=f"for all ({seconds:g})"
    )


def describe_topology(cell: CellTopology) -> str:
    """Return the workers and pairs of one cell as text."""
    lines = [f"scheduler, generation {cell.generation}: hand-off {cell.handoff}"]
    lines += [f"  {one.state} scheduler at {one.address}" for one in cell.schedulers]
    lines += _table(_WORKER_HEAD, [_worker_row(worker) for worker in cell.workers])
    pairs = []
    for pair in cell.pairs:
        speed = "-" if pair.bytes_per_second is None else f"{pair.bytes_per_second / 1e6:.1f}"
        counts = (str(pair.num_transfers), str(pair.num_failures))
        ends = (_short(pair.prefill), _short(pair.decode))
        refusal = "" if pair.refusal is None else f"refused: {pair.refusal}"
        pairs.append((*ends, pair.transport or "-", speed, *counts, refusal))
    lines += _table(_PAIR_HEAD, pairs)
    lines += _table(_STORE_HEAD, _store_rows(cell))
    lines += [f"WARNING: {warning}" for warning in cell.warnings]
    return "\n".join(lines)


def _store_rows(cell: CellTopology) -> list[tuple[str, ...]]:
    """Return the rows of the KV stores, with the share of the blocks that each has."""
    total = sum(store.num_blocks for store in cell.stores) or 1
    return [
        (
            store.address,
            "up" if store.is_up else "out of reach",
            str(store.num_blocks),
            f"{100 * store.num_blocks / total:.0f} %",
            "",
        )
        for store in cell.stores
    ]


def describe_self_test(cell: CellSelfTest) -> str:
    """Return the probes of one cell as text."""
    lines = [f"scheduler, generation {cell.generation}: {_count(len(cell.probes), 'pair')}"]
    lines += _table(_PROBE_HEAD, [_probe_row(probe) for probe in cell.probes])
    lines += [f"BROKEN: {problem}" for problem in cell.problems]
    if not cell.problems:
        num_moved = sum(probe.is_equal for probe in cell.probes)
        moved = f"blocks moved intact between {_count(num_moved, 'pair')} of workers"
        lines.append(moved if num_moved else "no worker needs another one's blocks")
    return "\n".join(lines)


def _worker_row(worker: WorkerFacts) -> tuple[str, ...]:
    endpoint = worker.kv_endpoint
    if endpoint:
        endpoint += f" ({', '.join(worker.kv_transports)})"
    return (
        _short(worker.worker),
        worker.model,
        ",".join(worker.roles),
        str(worker.num_running),
        str(worker.num_waiting),
        worker.weights_version or "-",
        _short(worker.layout),
        endpoint or "-",
        "draining" if worker.is_draining else "" if worker.memory == "awake" else worker.memory,
    )


def _probe_row(probe: ProbeFacts) -> tuple[str, ...]:
    outcome = "equal" if probe.is_equal else probe.error or "DIFFERENT"
    return (
        _short(probe.prefill),
        _short(probe.decode),
        probe.transport or "-",
        str(probe.num_blocks),
        str(probe.num_bytes),
        f"{probe.seconds:.3f}",
        outcome,
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return aligned lines; an empty list without rows."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  "
        + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _short(name: str) -> str:
    return name[:SHOWN_DIGITS]


def _roles(text: str) -> list[str]:
    roles = [role.strip() for role in text.split(",")]
    for role in roles:
        if role not in ROLES:
            known = ", ".join(ROLES)
            raise argparse.ArgumentTypeError(f"{role!r} is no role; there are: {known}")
    return roles
