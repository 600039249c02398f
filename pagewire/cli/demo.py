"""`pagewire demo kill`: kills a process under a stream; the answer stays the same."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from pagewire.cli.commands import EXIT_FAILED, choose_action
from pagewire.cli.progress import StartProgress
from pagewire.client.blocking_client import Client
from pagewire.config import ServeConfig
from pagewire.demo.kill import KillReport, run_kill
from pagewire.local.cluster import LocalCluster
from pagewire.local.notices import Notice
from pagewire.local.supervision import Restarting
from pagewire_shared.process.flags import HintingParser

DESCRIPTION = (
    "Serve the built-in model, stream an answer, kill -9 a process in the middle of it, and compare"
    " the answer with an undisturbed one. Exit status 0 when they are equal."
)
CONNECT_SECONDS = 10.0
NUM_TOKENS = 110
KILL_AFTER = 30


def run(name: str, argv: Sequence[str]) -> int:
    """Run the demonstration; return 0 when both answers are equal, else 1."""
    action, rest = choose_action(name, argv, {"kill": "kill a process under a stream"})
    parser = HintingParser(prog=f"pagewire {name} {action}", description=DESCRIPTION)
    parser.add_argument(
        "--what", choices=("worker", "scheduler"), default="worker", help="which role is killed"
    )
    parser.add_argument("--seed", type=int, default=7, help="seed of the sampling (default: 7)")
    options = parser.parse_args(rest)
    sampling = {
        "temperature": 0.3,
        "seed": options.seed,
        "max_tokens": NUM_TOKENS,
        "ignore_eos": True,
    }
    progress = StartProgress()

    def observe(notice: Notice) -> None:
        # The kill is announced by the command itself.
        if not isinstance(notice, Restarting):
            progress.show(notice)

    config = ServeConfig(log_level="error")
    cluster = LocalCluster(config, observer=observe, has_http=False)
    with ExitStack() as stack:
        stack.callback(cluster.stop)
        cluster.start()
        cluster.wait_ready()
        client = stack.enter_context(Client(cluster.grpc_address))
        client.wait_connected(CONNECT_SECONDS)
        _say(f"Streaming {NUM_TOKENS} tokens with seed {options.seed}:\n")
        report = run_kill(
            client,
            lambda: cluster.pids(options.what),
            sampling,
            after_tokens=KILL_AFTER,
            show=_show,
            on_kill=_announce,
        )
    print()
    _say(describe(report))
    return 0 if report.is_equal else EXIT_FAILED


def describe(report: KillReport) -> str:
    """Return what happened, in a few lines."""
    num_after = len(report.killed.token_ids) - report.num_before
    size = len(report.undisturbed.text.encode())
    verdict = (
        f"equal: {len(report.undisturbed.token_ids)} tokens, {size} bytes"
        if report.is_equal
        else "NOT EQUAL: this is a fault of Pagewire, please report it"
    )
    return "\n".join(
        [
            "",
            f"killed      {report.process} (process {report.pid}) after {report.num_before} tokens",
            f"pause       {report.pause_seconds:.2f} s, then {num_after} more tokens on the same"
            " connection",
            f"recoveries  {report.killed.num_recoveries}",
            f"compared    with the same request undisturbed: {verdict}",
        ]
    )


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _announce(process: str, pid: int) -> None:
    mark = f" [kill -9 {process}, process {pid}] "
    _say(f"\x1b[1;31m{mark}\x1b[0m" if sys.stderr.isatty() else mark, end="")


def _say(text: str, end: str = "\n") -> None:
    print(text, file=sys.stderr, end=end, flush=True)
