"""The committed stubs run on the oldest runtime that pyproject.toml allows, and on this one.

The floor is installed into .tools/floor, made once and kept.
"""

import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLOOR = ROOT / ".tools" / "floor"
PROGRAM = ROOT / "tests" / "support" / "processes" / "use_stubs.py"


def use_stubs(python: Path) -> str:
    result = subprocess.run(
        [python, "-W", "error", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def lowest(distribution: str) -> str:
    """The lower bound of a base dependency, in three parts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        if match := re.match(rf"{distribution}>=([\d.]+)", requirement):
            return ".".join([*match[1].split("."), "0"][:3])
    raise AssertionError(f"{distribution} is no base dependency with a lower bound")


@pytest.fixture(scope="session")
def floor_python() -> Path:
    """An environment that holds exactly the floor."""
    pins = [f"grpcio=={lowest('grpcio')}", f"protobuf=={lowest('protobuf')}"]
    wanted = f"Python {sys.version_info[0]}.{sys.version_info[1]} {' '.join(pins)}"
    python = FLOOR / "bin" / "python"
    stamp = FLOOR / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(FLOOR, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-input", *pins], check=True)
        stamp.write_text(wanted)
    return python


def test_stubs_run_on_the_floor(floor_python: Path) -> None:
    expected = f"grpcio {lowest('grpcio')} protobuf {lowest('protobuf')}"
    assert use_stubs(floor_python) == expected


def test_stubs_run_on_the_installed_runtime() -> None:
    expected = f"grpcio {version('grpcio')} protobuf {version('protobuf')}"
    assert use_stubs(Path(sys.executable)) == expected
