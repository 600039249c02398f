"""Every item of the first hour runs in its toy form, on a CPU, in Triton's interpreter; and with it
every command of benchmarks/gpu."""

import json
import os
import re
import subprocess
import sys

import pytest
from hour.goals import GOALS
from hour.plan import ITEMS

from ..conftest import BENCHMARKS

GPU = BENCHMARKS / "gpu"

TABLES = {
    "batch_invariance": ["other tokens"],
    "ceilings": ["copy within the device", "launch of a Triton kernel"],
    "decode_steps": ["of the floor", "longest gap ms"],
    "kernels": ["decode, batch 3", "prompt of 20", "rotary_kv_write", "temperature 0.6"],
    "nano_vllm_job": ["in-process", "served", "of the bound"],
    "smoke": ["first kernel", "first other token"],
    "ttft": ["p95 ms", "limit of p95"],
}
"""Command -> what its tables say."""


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rehearsal")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    places = ["--out", folder, "--scratch", folder / "scratch", "--cache", folder / "triton"]
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu/first_hour.py", "--rehearse", *places],
        cwd=BENCHMARKS.parent,
        capture_output=True,
        text=True,
        env=environment,
    )
    return folder, done


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_item_passes_its_rehearsal(rehearsed):
    folder, done = rehearsed
    report = json.loads((folder / "report.json").read_text())
    shown = [(found["item"], found["output"][-3000:]) for found in report["findings"]]
    assert (done.returncode, shown) == (0, []), done.stdout + done.stderr
    assert set(report["items"]) == {item.name for item in ITEMS}
    # Their figures come to the rows that they fill.
    assert [goal["row"] for goal in report["goals"]] == [goal.number for goal in GOALS]
    assert all(goal["seen"] is not None for goal in report["goals"])
    assert "0 have not run" in (folder / "report.md").read_text()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TABLES)
def test_a_command_prints_and_writes_its_tables(name, rehearsed):
    folder, _ = rehearsed
    ends = {}
    for line in (folder / "state.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["event"] == "end":
            ends[record["item"]] = record
    item = next(item for item in ITEMS if f"benchmarks/gpu/{name}.py" in item.toy)
    end = ends[item.name]
    assert "Triton interpreted; torch" in end["output"]
    for text in TABLES[name]:
        assert text in end["output"]
    assert end["result"]["tables"]
    assert all(table["rows"] for table in end["result"]["tables"])


def test_all_commands_are_rehearsed():
    programs = {path.stem for path in GPU.glob("*.py") if "__main__" in path.read_text()}
    needing_a_device = {
        name
        for name in programs
        if re.search(r"^import command$", (GPU / f"{name}.py").read_text(), re.MULTILINE)
    }
    assert needing_a_device == set(TABLES)


def test_without_a_device_a_command_says_how_to_run_it():
    code = "import sys, torch; torch.cuda.is_available = lambda: False; sys.argv[1:] = []; "
    code += "import command; command.device()"
    done = subprocess.run([sys.executable, "-c", code], cwd=GPU, capture_output=True, text=True)
    assert done.returncode == 1
    assert "--toy" in done.stderr


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ([], "--out"),
        (["--out", "x", "--minutes", "0"], "--minutes"),
        (["--out", "x", "--state", "missing.jsonl"], "missing.jsonl"),
        (["--rehearse", "--plan"], "--plan"),
    ],
)
def test_bad_flags_are_named(flags, named, tmp_path):
    done = subprocess.run(
        [sys.executable, GPU / "first_hour.py", *flags],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert named in done.stderr
    assert list(tmp_path.iterdir()) == []
