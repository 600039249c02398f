"""Each role where nothing but the core dependencies is installed: one line says what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# Hides what the extras bring, as if it had not been installed.
HIDE = """
import sys
from importlib.abc import MetaPathFinder

HIDDEN = {"awscrt", "fastapi", "jinja2", "prometheus_client", "redis", "tokenizers", "torch"}

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Hidden())
"""

FLAGS = {
    "frontend": ("--scheduler", "127.0.0.1:1"),
    "scheduler": (),
    "worker": ("--model", "nowhere"),
    "kvstore": (),
}


def run_bare(folder: Path, role: str, *flags: str) -> "subprocess.CompletedProcess[str]":
    (folder / "sitecustomize.py").write_text(HIDE)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "pagewire", role, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


@pytest.mark.parametrize("role", FLAGS)
def test_a_missing_extra_is_one_line(role: str, tmp_path: Path) -> None:
    result = run_bare(tmp_path, role, *FLAGS[role])
    assert result.returncode == 1, result.stdout + result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"pagewire {role}: error: the package ")
    assert f"pip install 'pagewire[{role}]'" in line


@pytest.mark.parametrize("role", FLAGS)
def test_help_needs_no_extra(role: str, tmp_path: Path) -> None:
    result = run_bare(tmp_path, role, "--help")
    assert result.returncode == 0, result.stderr
    assert "--log-level" in result.stdout
