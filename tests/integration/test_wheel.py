"""The wheel holds the seven packages under their own names, every file of them, nothing else."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from support.source_tree import ROOT, package_folders


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a freshly built wheel, its metadata left out."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    return {name for name in names if ".dist-info/" not in name}


def test_wheel_holds_every_file_of_every_package(wheel_names: set[str]) -> None:
    expected = {
        path.relative_to(folder.parent).as_posix()
        for folder in package_folders()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert wheel_names == expected


def test_every_package_in_the_wheel_is_typed(wheel_names: set[str]) -> None:
    assert {folder.name for folder in package_folders()} == {
        name.removesuffix("/py.typed") for name in wheel_names if name.endswith("/py.typed")
    }


def test_each_role_has_an_extra_and_all_holds_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    roles = sorted(path.parent.name for path in Path(ROOT, "services").glob("*/pagewire_*"))
    assert sorted(set(extras) & set(roles)) == roles
    (all_roles,) = extras["all"]
    listed = all_roles.removeprefix("pagewire[").removesuffix("]").split(",")
    assert sorted(listed) == roles
