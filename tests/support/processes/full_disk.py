"""A program that mounts a small file system and fills it, in a name space of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_with_mounts(program: str, folder: Path) -> None:
    """Run `program` with `folder` as its argument where it may mount; skip where nobody may."""
    inside = ["unshare", "--mount", "--map-root-user"]
    try:
        subprocess.run([*inside, "mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system may be mounted here: {error}")
    command = [*inside, sys.executable, "-c", program, str(folder)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
