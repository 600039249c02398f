"""The gap in open streams when a process hangs or is killed, and where its time goes.

Every turn ends one process of a deployment while streams run, and waits until they have ended.
Times are seconds from the signal.
"""

import argparse
import math
import os
import random
import re
import signal
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parts.timed_stream import TimedStream

from pagewire.bench.openai_stream import Target
from pagewire.config import config_from_keywords
from pagewire.local.child_process import LineReceived
from pagewire.local.cluster import LocalCluster
from pagewire.local.notices import ChildReady, Loading, Notice
from pagewire.local.supervision import Restarting
from pagewire.models import BUILTIN_NAME

WAIT_SECONDS = 120.0
LOOK_SECONDS = 0.005
CASES = ("stop-scheduler", "stop-kvstore", "stop-worker", "kill-scheduler", "kill-worker")


class TimeLine:
    """What has happened since the signal."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.entries: list[tuple[float, str]] = []
        self.active = "scheduler"

    def observe(self, notice: Notice) -> None:
        """Take down what a deployment tells."""
        match notice:
            case Restarting(name, reason, delay):
                self.note(f"{name} has ended ({reason}), next in {delay:.3f} s")
            case Loading(name, _, detail):
                self.note(f"{name} loads: {detail}")
            case ChildReady(name):
                self.note(f"{name} is ready")
            case LineReceived(name, text):
                if "takes over as generation" in text:
                    self.active = name
                # Without the time, level and logger of a log line.
                self.note(f"{name} logs: {re.split('pagewire_[a-z_.]+:? ', text)[-1]}")
            case _:
                self.note(str(notice))

    def note(self, text: str) -> None:
        """Take down one event."""
        self.entries.append((time.perf_counter() - self.begin, text))

    def restart(self) -> None:
        """Begin anew."""
        self.entries = []
        self.begin = time.perf_counter()


@dataclass(frozen=True, slots=True)
class Turn:
    """One disturbance.

    Attributes:
        gap: The longest time without a token of a stream that it met, in seconds.
        lines: The time line.
    """

    gap: float
    lines: Sequence[tuple[float, str]]


def main() -> None:
    """Print a line per case, and the time line of its median turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default=BUILTIN_NAME)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-streams", type=int, default=6)
    parser.add_argument("--output-len", type=int, default=1500)
    parser.add_argument("--standby", action="store_true", help="with a second scheduler")
    parser.add_argument("--idle-seconds", type=float, default=31.0, help="between turns")
    options = parser.parse_args()
    line = TimeLine()
    wanted = {"model": (options.checkpoint,), "port": 0, "grpc_port": 0, "log_level": "info"}
    wanted["kvstore_memory"] = "64MiB"
    wanted["standby_scheduler"] = options.standby
    cluster = LocalCluster(config_from_keywords(wanted, {}).config, observer=line.observe)
    try:
        cluster.start()
        cluster.wait_ready(WAIT_SECONDS)
        memory = ", ".join(f"{name} {rss_mib(pid):.0f}" for name, pid in cluster.pids().items())
        print(f"RSS in MiB: {memory}")
        for case in options.cases:
            turns = [disturb(cluster, case, line, options, seed) for seed in range(options.rounds)]
            show(case, turns)
    finally:
        cluster.stop()


def disturb(
    cluster: LocalCluster, case: str, line: TimeLine, options: argparse.Namespace, seed: int
) -> Turn:
    """Start streams, disturb one process once all of them run, and wait for their ends."""
    how, role = case.split("-")
    dice = random.Random(seed)
    target = Target(str(cluster.http_url), cluster.models[0].name, is_chat=False)
    streams = [
        TimedStream([dice.randrange(300, 3000) for _ in range(100)], options.output_len)
        for _ in range(options.num_streams)
    ]
    threads = [threading.Thread(target=stream.run, args=(target,)) for stream in streams]
    for thread in threads:
        thread.start()
    while min(stream.num_tokens for stream in streams) < options.output_len // 16:
        time.sleep(LOOK_SECONDS)
    name = line.active if role == "scheduler" else next(iter(cluster.pids(role)))
    pid = cluster.pids(role)[name]
    line.restart()
    os.kill(pid, signal.SIGSTOP if how == "stop" else signal.SIGKILL)
    while cluster.pids().get(name, pid) == pid:
        time.sleep(LOOK_SECONDS)
    line.note(f"{name} runs again as another process")
    for thread in threads:
        thread.join()
    gaps = [max(stream.gaps(line.begin, stream.arrivals[-1]), default=0.0) for stream in streams]
    line.note("all streams have ended")
    time.sleep(options.idle_seconds)
    return Turn(max(gaps), tuple(line.entries))


def show(case: str, turns: Sequence[Turn]) -> None:
    """Print least, p50, p99 and most, and the time line of the turn in the middle."""
    gaps = sorted(turn.gap for turn in turns)
    middle = sorted(turns, key=lambda turn: turn.gap)[len(turns) // 2]
    p50, p99 = statistics.median(gaps), gaps[math.ceil(0.99 * len(gaps)) - 1]
    print(f"\n{case}: least {gaps[0]:.2f}, p50 {p50:.2f}, p99 {p99:.2f}, most {gaps[-1]:.2f} s")
    for seconds, text in middle.lines:
        print(f"  {seconds:7.3f}  {text}")


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


if __name__ == "__main__":
    main()
