"""The code of the version before this one, taken from the history of the repository."""

import io
import os
import re
import subprocess
import tarfile
import tomllib
from pathlib import Path

from support.processes.role_processes import Place

ROOT = Path(__file__).resolve().parents[3]
_LAUNCHER = Path(__file__).with_name("run_role_from.py")
_SOURCES = (
    "protos/gen",
    "shared",
    *(f"services/{role}" for role in ("frontend", "scheduler", "worker", "kvstore")),
)
_HEADING = re.compile(r"^## \[([^\]]+)\].*$", re.MULTILINE)


class NoHistoryError(Exception):
    """The commit that cut a version is not in this clone."""


def previous_version(changelog: str) -> str:
    """Return the newest version in the text of a changelog that is older than the tree it is in:
    the newest one where there is something under *Unreleased*, else the one before."""
    headings = list(_HEADING.finditer(changelog))
    assert headings[0][1] == "Unreleased", "the changelog begins with what is not released"
    unreleased = changelog[headings[0].end() : headings[1].start()].strip()
    return headings[1 if unreleased else 2][1]


def cut_commit(repository: Path, version: str) -> str:
    """Return the newest commit that set this version in pyproject.toml. Raises NoHistoryError."""
    # With -m also merges are looked at.
    listed = _git(repository, "log", "-m", "--format=%H", "-G^version = ", "--", "pyproject.toml")
    for commit in listed.decode().split():
        project = tomllib.loads(_git(repository, "show", f"{commit}:pyproject.toml").decode())
        # The first commit of a shallow clone seems to set everything.
        if project["project"]["version"] == version and _has_parent(repository, commit):
            return commit
    raise NoHistoryError(
        f"the commit that cut {version} is not in this clone, which the test of compatibility "
        "needs: git fetch --unshallow"
    )


def extract(repository: Path, commit: str, folder: Path) -> Path:
    """Write the services of a commit, and what they share, into `folder`; return it."""
    archive = _git(repository, "archive", "--format=tar", commit, *_SOURCES)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def place_from(tree: Path, role: str, address: str) -> Place:
    """Return where a role runs with the code of `tree` and the third-party packages of today. A
    process that finds other code ends at once."""
    path = os.pathsep.join(str(tree / source) for source in _SOURCES)
    program = ("-P", str(_LAUNCHER), str(tree), f"pagewire_{role}")
    return Place(address, program=program, environ={"PYTHONPATH": path})


def _has_parent(repository: Path, commit: str) -> bool:
    return len(_git(repository, "rev-list", "--parents", "-1", commit).split()) > 1


def _git(repository: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, check=False)
    if done.returncode:
        raise NoHistoryError(f"git {arguments[0]}: {done.stderr.decode().strip()}")
    return done.stdout
