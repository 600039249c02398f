"""Items as real processes: hangs, crashes, children that left the group, a harness killed."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from hour import kernel_cache
from hour.call import Budget, run_call
from hour.items import PYTHON
from hour.machine import Machine
from hour.process import TOKEN_VARIABLE, kill_all_of, run
from hour.state import State

from ..conftest import BENCHMARKS
from .conftest import item

HANGS = """
import subprocess, sys, time
children = [
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=own)
    for own in (False, True)
]
print("children", *(child.pid for child in children), flush=True)
time.sleep(600)
"""


def ran(code, tmp_path, limit=60.0, num_kept=4096, token="t-run"):
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    return run(
        [sys.executable, "-c", code],
        environment=environment,
        folder=tmp_path,
        limit=limit,
        token=token,
        num_kept=num_kept,
    )


def is_alive(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_an_item_that_hangs_is_killed_with_its_children_and_says_where_it_was(tmp_path):
    found = ran(HANGS, tmp_path, limit=3.0)
    assert found.is_over_limit
    assert "most recent call first" in found.output
    line = next(line for line in found.output.splitlines() if line.startswith("children"))
    assert not any(is_alive(number) for number in line.split()[1:])


def test_children_of_an_item_that_ended_are_killed_too(tmp_path):
    found = ran(HANGS.rpartition("time.sleep")[0], tmp_path)
    assert found.code == 0
    assert not any(is_alive(number) for number in found.output.split()[1:])


def test_the_last_bytes_of_the_output_are_kept(tmp_path):
    found = ran("print('x' * 300_000); print('the end')", tmp_path, num_kept=1000)
    assert len(found.output) == 1000
    assert found.output.endswith("the end\n")


def test_an_item_that_crashes_costs_one_item(tmp_path):
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    items = [
        item("a", PYTHON, "-c", crash, modules=frozenset()),
        item("b", PYTHON, "-c", "print('fine')", modules=frozenset()),
    ]
    state = State(tmp_path / "state.jsonl")
    machine = Machine(scratch=tmp_path, cache=tmp_path, is_rehearsal=True)
    run_call(items, state, Budget(call_seconds=900, all_seconds=900), machine)
    ends = {record["item"]: record for record in state.records if record["event"] == "end"}
    assert (ends["a"]["outcome"], ends["a"]["code"]) == ("crashed", -signal.SIGSEGV)
    assert "Segmentation fault" in ends["a"]["output"]
    assert ends["b"]["outcome"] == "passed"


HARNESS = """
import sys
from pathlib import Path
sys.path.insert(0, {gpu!r})
from hour.call import Budget, run_call
from hour.items import PYTHON, Item
from hour.machine import Machine
from hour.state import State
folder = Path({folder!r})
def item(name, code):
    command = (PYTHON, "-c", code)
    return Item(name=name, command=command, toy=command, shows="", seconds=10, limit=300)
once = (
    "import sys, time; from pathlib import Path; place = Path({folder!r}, 'begun');\\n"
    "if not place.exists(): place.touch(); time.sleep(600)"
)
items = [item("a", "print(1)"), item("b", once), item("c", "print(3)")]
machine = Machine(scratch=folder, cache=folder, is_rehearsal=True)
budget = Budget(call_seconds=900, all_seconds=900)
print(run_call(items, State(folder / "state.jsonl"), budget, machine))
"""


@pytest.fixture
def harness(tmp_path):
    script = tmp_path / "harness.py"
    script.write_text(
        textwrap.dedent(HARNESS).format(gpu=str(BENCHMARKS / "gpu"), folder=str(tmp_path))
    )
    processes = []

    def start():
        process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def events(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def test_a_harness_killed_by_force_goes_on_where_it_was(tmp_path, harness):
    first = harness()
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.kill()
    first.wait()
    token = events(tmp_path / "state.jsonl")[-1]["token"]
    printed, _ = harness().communicate(timeout=60)
    assert "nothing is left" in printed
    begun = [(e["event"], e["item"]) for e in events(tmp_path / "state.jsonl") if "item" in e]
    assert begun == [
        *(("start", "a"), ("end", "a"), ("start", "b")),
        *(("start", "b"), ("end", "b"), ("start", "c"), ("end", "c")),
    ]
    # What the killed harness had begun did not go on beside the rest.
    assert kill_all_of(token) == 0


def test_what_carries_the_token_of_another_item_is_left_alone(tmp_path):
    environment = {**os.environ, TOKEN_VARIABLE: "other"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, env=environment) as process:
        kill_all_of("t-none")
        assert process.poll() is None
        process.communicate(b"\n")
    assert process.returncode == 0


def test_compiled_kernels_are_packed_and_unpacked_where_there_are_none(tmp_path, monkeypatch):
    cache, other, archive = tmp_path / "cache", tmp_path / "other", tmp_path / "cache.tar.gz"
    (cache / "a" / "b").mkdir(parents=True)
    (cache / "a" / "b" / "kernel.cubin").write_bytes(os.urandom(2000))
    assert kernel_cache.pack(cache, archive)
    assert kernel_cache.unpack(archive, other) == 1
    assert (other / "a/b/kernel.cubin").read_bytes() == (cache / "a/b/kernel.cubin").read_bytes()
    (other / "a/b/kernel.cubin").write_bytes(b"newer")
    kernel_cache.unpack(archive, other)
    assert (other / "a/b/kernel.cubin").read_bytes() == b"newer"
    monkeypatch.setattr(kernel_cache, "MOST_BYTES", 1000)
    archive.unlink()
    assert not kernel_cache.pack(cache, archive)
    assert list(tmp_path.glob("cache.tar*")) == []
