"""What a test does about a program that the machine does not have."""

import os
import shutil
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
