"""`pagewire admin profile` and `stacks`: a trace of the steps of a worker, and where the code of
all processes is."""

import argparse
import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

from pagewire.cli.commands import EXIT_FAILED, print_cells, waiting_seconds
from pagewire.client.inspection_client import (
    PROFILE_SECONDS,
    STACKS_SECONDS,
    read_profile,
    stacks,
    start_profile,
)
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import SHOWN_DIGITS
from pagewire_shared.inspection.stacks import CodePlace, ProcessPlaces
from pagewire_shared.inspection.trace_files import trace_name
from pagewire_shared.process.flags import HintingParser
from pagewire_shared.process.sizes import format_size

DEFAULT_STEPS = 50


def run_profile(parser: HintingParser, argv: Sequence[str]) -> int:
    """Profile a worker, and write the trace."""
    parser.add_argument("worker", metavar="WORKER", help="its id, or the beginning of it")
    parser.add_argument(
        "--steps",
        type=_steps,
        default=DEFAULT_STEPS,
        help=f"steps with work, at most 1000 ({DEFAULT_STEPS})",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="of the trace (default: a new .trace.json.gz file here)"
    )
    parser.add_argument(
        "--timeout-seconds",
        type=waiting_seconds,
        default=PROFILE_SECONDS,
        help=f"after which the trace has what there is, at most 600 ({PROFILE_SECONDS:g})",
    )
    options = parser.parse_args(argv)
    path, trace = asyncio.run(_profile(options))
    try:
        path.write_bytes(trace)
    except OSError as error:
        raise InvalidRequestError(f"--out: {path}: {error.strerror}", field="out") from None
    print(f"wrote {path}, {format_size(len(trace))}: open it with https://ui.perfetto.dev")
    return 0


async def _profile(options: argparse.Namespace) -> tuple[Path, bytes]:
    server, key = options.server, options.server_api_key
    (worker,) = await start_profile(
        server,
        worker=options.worker,
        num_steps=options.steps,
        timeout_seconds=options.timeout_seconds,
        api_key=key,
    )
    path = Path(options.out or trace_name(worker))
    trace = await read_profile(server, worker, api_key=key)
    return path, trace


def run_stacks(parser: HintingParser, argv: Sequence[str]) -> int:
    """Print the stacks; return 1 when a process has not answered."""
    parser.add_argument(
        "target",
        nargs="?",
        metavar="ROLE or NAME",
        help="frontend, scheduler, worker or kvstore, or the beginning of a name (default: all)",
    )
    parser.add_argument(
        "--timeout-seconds",
        type=waiting_seconds,
        default=STACKS_SECONDS,
        help=f"wait for the processes ({STACKS_SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    asked = stacks(
        options.server,
        options.target,
        timeout_seconds=options.timeout_seconds,
        api_key=options.server_api_key,
    )
    found = asyncio.run(asked)
    if not found:
        raise InvalidRequestError(f"no process is called {options.target!r}", field="target")
    print_cells(found, describe_stacks, as_json=options.json)
    return EXIT_FAILED if any(process.error for process in found) else 0


def describe_stacks(process: ProcessPlaces) -> str:
    """Return the stacks of one process as text."""
    name, _, rank = process.name.partition(" ")
    shown = " ".join(filter(None, (_short(process.role, name), rank)))
    lines = [f"{process.role} {shown}" + (f", process {process.pid}" if process.pid else "")]
    if process.error:
        lines.append(f"  {process.error}")
    native = [thread for thread in process.threads if not thread.frames]
    for thread in process.threads:
        if thread.frames:
            number = f" ({thread.native_id})" if thread.native_id else ""
            lines.append(f"  thread {thread.name or 'without a name'}{number}")
            lines += _frames(thread.frames)
    if native:
        names = (thread.name or thread.native_name or "?" for thread in native)
        lines.append(f"  threads without Python: {', '.join(sorted(names))}")
    for task in process.tasks:
        times = f"{task.count} tasks" if task.count > 1 else "task"
        lines.append(f"  {times} {task.name}")
        lines += _frames(task.frames)
    if process.num_left_out:
        lines.append(f"  and {process.num_left_out} more threads and tasks")
    return "\n".join(lines)


def _frames(frames: Iterable[CodePlace]) -> list[str]:
    return [f"    {one.file}:{one.line} {one.function}" for one in frames]


def _short(role: str, name: str) -> str:
    return name[:SHOWN_DIGITS] if role in ("worker", "frontend") else name


def _steps(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 1000")
    return int(text)
