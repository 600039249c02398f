"""Every command of benchmarks/gpu runs at its toy size, in Triton's interpreter."""

import json
import os
import subprocess
import sys

import pytest

from .conftest import BENCHMARKS

COMMANDS = {
    "batch_invariance": ["other tokens"],
    "ceilings": ["copy within the device", "launch of a Triton kernel"],
    "decode_steps": ["of the floor", "longest gap ms"],
    "kernels": ["decode, batch 3", "prompt of 20", "rotary_kv_write", "temperature 0.6"],
    "nano_vllm_job": ["in-process", "served", "of the bound"],
    "ttft": ["p95 ms", "limit of p95"],
}
"""Command -> what its tables say."""

WITHOUT_DEVICE = {"predict"}
"""Commands that need none; test_predictions.py runs them."""

SECONDS = 100


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """All commands, begun together: each waits for its own processes most of the time."""
    folder = tmp_path_factory.mktemp("gpu")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    processes = {
        name: subprocess.Popen(
            [sys.executable, f"{name}.py", "--toy", "--output", folder / f"{name}.json"],
            cwd=BENCHMARKS / "gpu",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for name in COMMANDS
    }
    yield folder, processes
    for process in processes.values():
        process.kill()
        process.communicate()


def test_all_commands_are_known():
    scripts = (BENCHMARKS / "gpu").glob("*.py")
    assert {p.stem for p in scripts if "__main__" in p.read_text()} == set(
        COMMANDS
    ) | WITHOUT_DEVICE


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_runs_at_its_toy_size(name, started):
    folder, processes = started
    printed, errors = processes[name].communicate(timeout=SECONDS)
    assert processes[name].returncode == 0, errors
    assert "Triton interpreted; torch" in printed
    for text in COMMANDS[name]:
        assert text in printed
    written = json.loads((folder / f"{name}.json").read_text())
    assert all(table["rows"] for table in written["tables"])
    assert printed.count("| --- |") >= len(written["tables"]) >= 1


def test_without_a_device_a_command_says_how_to_run_it():
    code = "import sys, torch; torch.cuda.is_available = lambda: False; sys.argv[1:] = []; "
    code += "import command; command.device()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=BENCHMARKS / "gpu", capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "--toy" in done.stderr
