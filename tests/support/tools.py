"""What a test does about a program that the machine does not have."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip, or fail where tools are required."""
    if os.environ.get("PAGEWIRE_REQUIRE_TOOLS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def tool(name: str, install_command: str) -> str:
    """Return the path of a program; `missing` where there is none."""
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not installed: {install_command}")
    return path


def npm_install(folder: Path) -> None:
    """Install the packages of a client; `missing` where no index has them.

    Without their scripts: these need a shell, and only say which versions suit each other.
    """
    npm = tool("npm", "apt-get install nodejs npm")
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        missing(f"npm cannot install the client's packages: {done.stderr.strip()}")
