"""How benchmarks/compare takes servers through the cases, and what it knows of their processes."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from compare import process_tree
from compare.foreign_load import CpuClock, foreign_share
from compare.measurement import Plan, measure
from compare.peers.driver_process import DriverProcess
from compare.peers.http_server import start
from compare.peers.protocol import NotStartedError, Setup
from compare.process_tree import MemoryPeak
from compare.work import Request, RunFailedError, Timed


@dataclass
class FakeServer:
    """Answers at once; fails on prompts of a length."""

    pid: int = field(default_factory=os.getpid)
    bad_length: int = 0
    asked: list[list[Request]] = field(default_factory=list)
    is_stopped: bool = False

    def complete(self, requests: Sequence[Request], timeout_seconds: float) -> list[Timed]:
        self.asked.append(list(requests))
        if any(len(one.prompt) == self.bad_length for one in requests):
            raise RunFailedError("too long")
        now = time.perf_counter()
        return [
            Timed(now, [now + 0.1 * (n + 1) for n in range(one.max_tokens)], one.max_tokens)
            for one in requests
        ]

    def stop(self) -> None:
        self.is_stopped = True


@dataclass
class FakePeer:
    servers: list[FakeServer]
    label: str = "fake"
    num_started: int = 0

    def settings(self, setup: Setup) -> str:
        return "none"

    def start(self, setup: Setup) -> FakeServer:
        if self.num_started == len(self.servers):
            raise NotStartedError("no more")
        self.num_started += 1
        return self.servers[self.num_started - 1]


def plan(letters: str, repeats: int = 2) -> Plan:
    setup = Setup(Path("model"), "bfloat16", 2, Path("logs"), 1.0)
    return Plan(setup, list(letters), repeats, 5000, 0, 1.0, lambda line: None)


def test_one_server_takes_all_cases_but_starts() -> None:
    peer = FakePeer([FakeServer()])
    result = measure(peer, plan("abe"))
    assert {letter: len(runs) for letter, runs in result.runs.items()} == {"a": 2, "b": 2, "e": 2}
    assert result.failures == {}
    assert peer.servers[0].is_stopped
    # Of each case: one to warm up, then the batches of each run.
    assert [len(batch) for batch in peer.servers[0].asked] == [
        1,
        32,
        32,
        1,
        1,
        1,
        1,
        16,
        16,
        16,
        16,
    ]


def test_no_prompt_comes_twice_and_all_servers_get_the_same() -> None:
    peers = [FakePeer([FakeServer()]) for _ in range(2)]
    for peer in peers:
        measure(peer, plan("abcd"))
    first, second = (peer.servers[0].asked for peer in peers)
    assert first == second
    prompts = [one.prompt for batch in first for one in batch]
    assert len(set(prompts)) == len(prompts)


def test_a_case_that_fails_costs_only_itself() -> None:
    result = measure(FakePeer([FakeServer(bad_length=2048)]), plan("cd"))
    assert list(result.runs) == ["d"]
    assert result.failures == {"c": "too long"}


def test_a_server_that_does_not_start_is_a_failure() -> None:
    assert measure(FakePeer([]), plan("ab")).failures == {"": "no more"}


def test_every_start_is_a_new_server() -> None:
    peer = FakePeer([FakeServer() for _ in range(4)])
    result = measure(peer, plan("bf"))
    assert peer.num_started == 4  # the cases, two starts, memory
    assert all(server.is_stopped for server in peer.servers)
    assert len(result.figures("f", "start_seconds")) == 2
    assert len(result.figures("f", "loaded_mb")) == 1


def test_foreign_share_is_what_is_neither_idle_nor_ours() -> None:
    before, after = CpuClock(1000, 500, 400), CpuClock(1200, 650, 530)
    assert foreign_share(before, after) == pytest.approx(0.1)
    assert foreign_share(before, CpuClock(1200, 650, 560)) == 0.0


PARENT = (
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
)


def test_a_tree_is_seen_and_ended_with_its_children() -> None:
    with MemoryPeak() as peak:
        process = subprocess.Popen([sys.executable, "-c", PARENT], start_new_session=True)
        deadline = time.monotonic() + 20
        while (len(process_tree.members(process.pid)) < 2 or not peak.bytes) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.02)
    pids = process_tree.members(process.pid)
    assert len(pids) == 2
    assert peak.bytes > 1 << 20
    assert process_tree.memory_bytes(pids) > 1 << 20
    process_tree.stop(process.pid, patience_seconds=1)
    process.wait(5)
    assert not any(process_tree.lives(pid) for pid in pids)


def test_a_command_that_ends_or_is_not_there_has_not_started(tmp_path: Path) -> None:
    says_why = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with pytest.raises(NotStartedError, match="status 1: no such model"):
        start(says_why, {}, port=1, log=tmp_path / "log", start_seconds=20)
    with pytest.raises(NotStartedError, match="No such file"):
        start(["no-such-program"], {}, port=1, log=tmp_path / "log", start_seconds=20)


DRIVER = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    requests = json.loads(line)
    arrivals = [[[1.5, 1], [2.0, most - 1]] for _, most in requests]
    print(json.dumps({"arrivals": arrivals} if requests[0][0] else {"error": "empty"}), flush=True)
"""


def test_a_driver_is_asked_over_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER]
    driver = DriverProcess(command, {}, log=tmp_path / "log", start_seconds=20)
    try:
        (timed,) = driver.complete([Request((1, 2), 5)], 20)
        assert (timed.arrivals, timed.num_tokens) == ([1.5, 2.0], 5)
        with pytest.raises(RunFailedError, match="empty"):
            driver.complete([Request((), 5)], 20)
    finally:
        driver.stop()


def test_a_driver_that_is_silent_has_not_started(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(NotStartedError, match="no answer"):
        DriverProcess(command, {}, log=tmp_path / "log", start_seconds=0.2)
