"""The folder of a deployment's sockets: private, short, and removed after whoever was killed."""

import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pagewire.local.private_folder import PrivateFolder

HOLD = """
import sys, time
from pagewire.local.private_folder import PrivateFolder
folder = PrivateFolder()
print(folder.path, flush=True)
time.sleep(60)
"""


def test_the_folder_is_private_and_removed() -> None:
    folder = PrivateFolder()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    folder.remove()
    folder.remove()
    assert not folder.path.exists()


def test_a_long_tmpdir_is_avoided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    folder = PrivateFolder()
    assert not folder.path.is_relative_to(deep)
    folder.remove()


def test_folders_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env={"TMPDIR": "/tmp"}
    )
    try:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        PrivateFolder().remove()
        assert left.exists()
        owner.send_signal(signal.SIGKILL)
        owner.wait(10)
        PrivateFolder().remove()
        assert not left.exists()
    finally:
        owner.kill()
        owner.communicate()
