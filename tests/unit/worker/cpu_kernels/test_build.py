"""Compiling the kernels: which compiler, what it is told, and what is said when it fails."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from pagewire_worker.cpu_kernels import abi, build
from pagewire_worker.cpu_kernels.library import instruction_sets
from support.kernels.kernel_builds import copy_of_build, fake_compiler

MACHINE = platform.machine()
UNITS = {
    *(
        "interface.cpp",
        "drafts.cpp",
        "pool.cpp",
        "group.cpp",
        "hosts.cpp",
        "largest.cpp",
        "x86.cpp",
        "avx2.cpp",
        "avx512.cpp",
        "avx512bf16.cpp",
    ),
    *("amx.cpp", "amx_emulated.cpp"),
}


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """build.py with sources of its own, on a machine that there are kernels for."""
    module = copy_of_build(tmp_path)
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    monkeypatch.delenv("CXX", raising=False)
    return module


def use_compiler(monkeypatch: pytest.MonkeyPatch, path: Path, exit_status: int = 0) -> Path:
    monkeypatch.setenv("CXX", str(fake_compiler(path, exit_status)))
    return path.with_name(path.name + ".log")


def test_no_compiler(copied: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        copied.BuildError, match=r"there is no C\+\+ compiler: none of c\+\+, g\+\+, clang"
    ):
        copied.build()
    monkeypatch.setenv("CXX", "icpx -fast")
    with pytest.raises(copied.BuildError, match=r"compiler: none of icpx -fast$"):
        copied.build()
    assert not copied.is_built()


def test_another_machine(copied: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied.platform, "machine", lambda: "riscv64")
    with pytest.raises(copied.BuildError, match="no kernels for riscv64"):
        copied.build()


def test_the_compiler_of_the_environment_is_used(
    copied: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = use_compiler(monkeypatch, tmp_path / "my compiler")
    monkeypatch.setenv("CXX", f"'{tmp_path / 'my compiler'}' --with-cache")
    assert copied.build() == copied.LIBRARY
    *units, link = [line.split() for line in log.read_text().splitlines()]
    assert {Path(unit[unit.index("-c") + 1]).name for unit in units} == UNITS
    assert "-shared" in link
    assert all(line[0] == "--with-cache" for line in (*units, link))


def test_the_first_compiler_of_the_path_is_used(
    copied: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = tmp_path / "bin"
    found.mkdir()
    for name in ("g++", "clang++"):
        fake_compiler(found / name)
    monkeypatch.setenv("PATH", str(found))
    copied.build()
    assert [path.name for path in found.glob("*.log")] == ["g++.log"]


def test_nothing_is_assumed_of_the_processor(
    copied: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each file may use its own instruction set and no other; the interface, which asks the
    processor what it has, none."""
    log = use_compiler(monkeypatch, tmp_path / "compiler")
    copied.build()
    features = {}
    for line in log.read_text().splitlines()[:-1]:
        words = line.split()
        assert "-ffp-contract=off" in words
        name = Path(words[words.index("-c") + 1]).name
        features[name] = {word for word in words if word.startswith("-m")}
    assert features["interface.cpp"] == features["pool.cpp"] == features["x86.cpp"] == set()
    assert features["avx2.cpp"] == {"-mavx2", "-mfma"}
    assert not any("avx512bf16" in flag for flag in features["avx512.cpp"])
    assert "-mavx512bf16" in features["avx512bf16.cpp"]
    assert not any("amx" in flag for flag in features["amx_emulated.cpp"])
    assert {"-mamx-tile", "-mamx-bf16", "-mamx-int8"} <= features["amx.cpp"]
    assert "native" not in log.read_text()


def test_a_failure_shows_what_the_compiler_said(
    copied: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_compiler(monkeypatch, tmp_path / "compiler", exit_status=3)
    copied.LIBRARY.write_bytes(b"the one before")
    with pytest.raises(copied.BuildError) as caught:
        copied.build()
    for part in (str(tmp_path / "compiler"), "interface.cpp", "out of registers"):
        assert part in str(caught.value)
    assert copied.LIBRARY.read_bytes() == b"the one before"
    assert list(copied.FOLDER.glob("_kernels*")) == [copied.LIBRARY]


def test_a_failure_of_a_real_compiler(
    copied: ModuleType, require_tool: Callable[[str, str], str]
) -> None:
    require_tool("g++", "apt-get install g++")
    for path in copied.SOURCES.rglob("*.cpp"):
        path.write_text("#error nothing here\n")
    with pytest.raises(copied.BuildError, match="error: #error nothing here"):
        copied.build()


def test_with_a_compiler_there_are_kernels(require_tool: Callable[[str, str], str]) -> None:
    """Without them all their tests are skipped, and nobody would see why."""
    require_tool("g++", "apt-get install g++")
    if MACHINE not in build.MACHINES:
        pytest.skip(f"there are no kernels for {MACHINE}")
    assert build.is_built(), "run: python -m pagewire_worker.cpu_kernels.build"
    assert instruction_sets()


def test_a_library_is_known_by_its_sources(
    copied: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_compiler(monkeypatch, tmp_path / "compiler")
    assert not copied.is_built()
    copied.build()
    assert copied.is_built()
    made_of = copied.source_hash()
    for change in (append_line, rename, add_file):
        changed = copy_of_build(tmp_path / change.__name__)
        shutil.copy(copied.LIBRARY, changed.LIBRARY)
        assert changed.source_hash() == made_of
        assert changed.is_built()
        change(changed.SOURCES)
        assert changed.source_hash() != made_of
        assert not changed.is_built()
    monkeypatch.setattr(copied, "_COMMON", (*copied._COMMON, "-ffast-math"))
    assert not copied.is_built()


def append_line(sources: Path) -> None:
    with (sources / "attention/kv.h").open("a") as file:
        file.write("\n")


def rename(sources: Path) -> None:
    (sources / "attention/kv.h").rename(sources / "cache.h")


def add_file(sources: Path) -> None:
    (sources / "empty.h").touch()


def run_main(script: Path, compiler: Path, exit_status: int) -> "subprocess.CompletedProcess[str]":
    environment = {"CXX": str(fake_compiler(compiler, exit_status)), "PATH": ""}
    return subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )


def test_the_command(copied: ModuleType, tmp_path: Path) -> None:
    """It compiles, does nothing where that was done, and says why it could not."""
    if MACHINE not in copied.MACHINES:
        pytest.skip(f"there are no kernels for {MACHINE}")
    script = copied.FOLDER / "build.py"
    failed = run_main(script, tmp_path / "compiler", 1)
    assert failed.returncode == 1
    assert failed.stderr.startswith("the kernels were not compiled: ")
    assert "out of registers" in failed.stderr
    done = run_main(script, tmp_path / "compiler", 0)
    assert (done.returncode, done.stdout) == (0, f"compiled {copied.LIBRARY}\n")
    again = run_main(script, tmp_path / "compiler", 1)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_a_function_of_the_interface_is_declared_for_python(copied: ModuleType) -> None:
    header = (copied.SOURCES / "abi.h").read_text()
    declared = {word.split("(")[0].strip("*") for word in header.split() if word.startswith("pw_")}
    assert declared == set(abi.FUNCTIONS)
