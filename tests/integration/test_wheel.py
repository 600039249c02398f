"""The wheel holds the seven packages under their own names, every file of them, nothing else; with
a compiler the kernels, too, and then it is one of this platform."""

import platform
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pagewire_worker.cpu_kernels import build
from pagewire_worker.cpu_kernels.library import instruction_sets
from support.kernels.installed_wheel import try_wheel
from support.kernels.kernel_builds import fake_compiler, load_module
from support.source_tree import ROOT, package_folders, relative

LIBRARY = "pagewire_worker/cpu_kernels/_kernels.so"
HOOK = Path("services") / "worker" / "hatch_build.py"
HAS_KERNELS = platform.machine() in build.MACHINES

needs_kernels = pytest.mark.skipif(
    not HAS_KERNELS, reason=f"there are no kernels for {platform.machine()}"
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """What was built.

    Attributes:
        tag: Python, ABI and platform that it is for.
        contents: Its files but for the metadata.
        log: What the build said.
        path: The file.
    """

    tag: str
    contents: dict[str, bytes]
    log: str
    path: Path

    @property
    def is_pure(self) -> bool:
        return self.tag == "py3-none-any"


def build_wheel(source: Path, folder: Path, environment: dict[str, str] | None = None) -> Wheel:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir"]
    result = subprocess.run(
        [*command, folder, source], env=environment, capture_output=True, text=True, check=False
    )
    log = result.stdout + result.stderr
    assert result.returncode == 0, log
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    return Wheel(
        tag="-".join(wheel.stem.split("-")[2:]),
        contents={name: data for name, data in contents.items() if ".dist-info/" not in name},
        log=log,
        path=wheel,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """A wheel of this tree; the kernels are compiled now unless they were before."""
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A tree to build from in which nothing was compiled."""
    tree = tmp_path / "tree"
    for folder in package_folders():
        unwanted = shutil.ignore_patterns("__pycache__", "_kernels.so*")
        shutil.copytree(folder, tree / relative(folder), ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE", HOOK):
        shutil.copy(ROOT / name, tree / name)
    return tree


def test_wheel_holds_every_file_of_every_package(wheel: Wheel) -> None:
    expected = {
        path.relative_to(folder.parent).as_posix()
        for folder in package_folders()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith("_kernels.so")
    }
    assert wheel.contents.keys() - {LIBRARY} == expected


def test_every_package_in_the_wheel_is_typed(wheel: Wheel) -> None:
    assert {folder.name for folder in package_folders()} == {
        name.removesuffix("/py.typed") for name in wheel.contents if name.endswith("/py.typed")
    }


@needs_kernels
def test_with_a_compiler_the_wheel_holds_the_kernels(
    wheel: Wheel, require_tool: Callable[[str, str], str]
) -> None:
    require_tool("g++", "apt-get install g++")
    assert build.source_hash().encode() in wheel.contents[LIBRARY]
    assert wheel.tag == f"py3-none-{platform_tag()}"


@needs_kernels
def test_kernels_are_compiled_for_a_wheel(copied: Path, tmp_path: Path) -> None:
    compiler = fake_compiler(tmp_path / "compiler")
    made = build_wheel(copied, tmp_path, {"CXX": str(compiler), "PATH": ""})
    assert b"-shared" in made.contents[LIBRARY]
    assert made.tag == f"py3-none-{platform_tag()}"


@needs_kernels
def test_an_installed_wheel_computes_without_a_compiler(
    wheel: Wheel, tmp_path: Path, require_tool: Callable[[str, str], str]
) -> None:
    require_tool("g++", "apt-get install g++")
    assert try_wheel(wheel.path, tmp_path) == list(instruction_sets())


def test_a_wheel_for_a_named_processor(copied: Path, tmp_path: Path) -> None:
    """Its kernels are compiled anew, and the library of this tree stays."""
    library = copied / "services" / "worker" / LIBRARY
    library.write_bytes(b"of this machine")
    compiler = fake_compiler(tmp_path / "compiler")
    environment = {"CXX": str(compiler), "PATH": "", "PAGEWIRE_WHEEL_MACHINE": "x86_64"}
    made = build_wheel(copied, tmp_path, environment)
    assert b"-shared" in made.contents[LIBRARY]
    assert made.tag == "py3-none-linux_x86_64"
    assert library.read_bytes() == b"of this machine"


def test_flags_of_arm_as_zig_takes_them() -> None:
    compiler = load_module(ROOT / HOOK.with_name("wheels") / "zig_compiler.py", "zig_compiler")
    flags = ["-march=armv8.2-a+dotprod+bf16", "-mavx2", "-march=native", "x-march=armv8.2-a"]
    made = compiler.command("aarch64", "2.28", flags)
    assert made[-4:] == ["-mcpu=generic+v8_2a+dotprod+bf16", *flags[1:]]
    assert made[made.index("-target") + 1] == "aarch64-linux-gnu.2.28"


@pytest.mark.parametrize("machine", ["riscv64", "x86_64"])
def test_a_wheel_for_a_named_processor_has_kernels_or_is_not_built(
    machine: str, copied: Path, tmp_path: Path
) -> None:
    environment = {"CXX": "no-such-compiler", "PATH": "", "PAGEWIRE_WHEEL_MACHINE": machine}
    with pytest.raises(AssertionError, match=r"no kernels for riscv64|no C\+\+ compiler"):
        build_wheel(copied, tmp_path, environment)
    assert not list(tmp_path.glob("*.whl"))


def test_without_a_compiler_the_wheel_is_pure(copied: Path, tmp_path: Path, wheel: Wheel) -> None:
    made = build_wheel(copied, tmp_path, {"CXX": "no-such-compiler", "PATH": ""})
    assert made.is_pure
    assert made.contents.keys() == wheel.contents.keys() - {LIBRARY}
    assert "the kernels for CPUs were not compiled" in made.log
    if HAS_KERNELS:
        assert "there is no C++ compiler: none of no-such-compiler" in made.log


def test_a_compiler_that_fails_does_not_stop_the_build(copied: Path, tmp_path: Path) -> None:
    compiler = fake_compiler(tmp_path / "compiler", exit_status=1)
    made = build_wheel(copied, tmp_path, {"CXX": str(compiler), "PATH": ""})
    assert made.is_pure
    assert LIBRARY not in made.contents
    if HAS_KERNELS:
        assert "out of registers" in made.log


@needs_kernels
@pytest.mark.parametrize(
    ("target", "version", "compiles"),
    [("wheel", "editable", True), ("sdist", "standard", False)],
)
def test_what_is_no_wheel(
    target: str,
    version: str,
    compiles: bool,
    copied: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An editable installation has them beside their sources, a source distribution nowhere."""
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path / "compiler")))
    hook_type = load_module(copied / HOOK, "copied_hatch_build").KernelsHook
    hook = hook_type(str(copied), {}, None, None, str(tmp_path), target, None)
    data: dict[str, Any] = {"artifacts": []}
    hook.initialize(version, data)
    assert data == {"artifacts": []}
    assert (copied / "services" / "worker" / LIBRARY).exists() is compiles


def platform_tag() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def test_each_role_has_an_extra_and_all_holds_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    roles = sorted(path.parent.name for path in Path(ROOT, "services").glob("*/pagewire_*"))
    assert sorted(set(extras) & set(roles)) == roles
    (all_roles,) = extras["all"]
    listed = all_roles.removeprefix("pagewire[").removesuffix("]").split(",")
    assert sorted(listed) == roles
