"""What processes do, as the kernel tells; real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pagewire.local.process_activity import Activity, ActivityMeter
from support.processes.processes import wait_until

SLEEPS = "import sys, time; print('up', flush=True); time.sleep(600)"
COMPUTES = """
import threading
def compute():
    while True:
        sum(range(10_000))
threading.Thread(target=compute, daemon=True).start()
print('up', flush=True)
threading.Event().wait()
"""
"""Its main thread sleeps: all of them count."""


@contextmanager
def running(code: str) -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def becomes(pid: int, wanted: Activity) -> None:
    meter = ActivityMeter()
    wait_until(lambda: meter.look(pid, time.monotonic()) is wanted, 30, wanted.value)


def test_a_sleeping_process_is_idle() -> None:
    with running(SLEEPS) as pid:
        becomes(pid, Activity.IDLE)


def test_a_process_that_computes_in_any_thread_is_busy() -> None:
    with running(COMPUTES) as pid:
        meter = ActivityMeter()

        def looks() -> bool:
            time.sleep(0.2)
            return meter.look(pid, time.monotonic()) is Activity.BUSY

        wait_until(looks, 30, "busy")


def test_a_stopped_process_is_stopped_despite_earlier_work() -> None:
    with running(COMPUTES) as pid:
        os.kill(pid, signal.SIGSTOP)
        becomes(pid, Activity.STOPPED)


def test_the_first_look_at_a_running_process_is_held() -> None:
    with running(COMPUTES) as pid:
        meter = ActivityMeter()
        assert meter.look(pid, 1.0) is Activity.HELD
        meter.look(pid, 2.0)
        meter.forget(pid)
        assert meter.look(pid, 3.0) is Activity.HELD


@pytest.mark.parametrize(("states", "wanted"), [("SSR", "held"), ("SD", "held"), ("tt", "held")])
def test_a_process_that_waits_for_a_core_is_held(tmp_path, states: str, wanted: str) -> None:
    for number, state in enumerate(states):
        task = tmp_path / "7" / "task" / str(7 + number)
        task.mkdir(parents=True)
        line = f"{7 + number} (a) b) c) {state} " + " ".join(["0"] * 40)
        (task / "stat").write_text(line)
        if not number:
            (tmp_path / "7" / "stat").write_text(line)
    meter = ActivityMeter(tmp_path)
    meter.look(7, 0.0)
    assert meter.look(7, 1.0).value == wanted


def test_the_activity_of_an_ended_process_is_unknown() -> None:
    with running(SLEEPS) as pid:
        pass
    assert ActivityMeter().look(pid, 1.0) is Activity.UNKNOWN
