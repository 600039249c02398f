"""Folders, paths and names that no adapter may have."""

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from pagewire_shared.adapters.content_id import CONFIG_NAME, WEIGHTS_NAME
from support.adapters.hostile.case import GoodAdapter, HostileCase, pack


def hostile_places(
    good: GoodAdapter, root: Path, outside: Path, model: str
) -> Iterator[HostileCase]:
    """Yield cases whose files are no files, or whose path or name is at fault.

    Args:
        root: The folder below which calls may load.
        outside: A whole good adapter that is not below it.
        model: Name of the model.
    """
    yield from _files(good, outside)
    yield from _paths(good, root, outside)
    names = ("", model, "x" * 256, "x" * 100_000, "half\ud800", "\ud800" * 10)
    for number, name in enumerate(names):
        yield HostileCase(f"name {number}", good.case("").write, name=name)


def _files(good: GoodAdapter, outside: Path) -> Iterator[HostileCase]:
    made: dict[str, Callable[[Path], None]] = {
        "a folder": lambda path: path.mkdir(),
        "a pipe": lambda path: os.mkfifo(path),
        "a socket": _socket,
        "missing": lambda path: None,
        "a loop": lambda path: path.symlink_to(path.name),
        "a link to nothing": lambda path: path.symlink_to("nothing"),
        "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "a link to memory": lambda path: path.symlink_to("/proc/self/mem"),
        "a link out": lambda path: path.symlink_to(outside / path.name),
        "a link up": lambda path: path.symlink_to(f"../../../../../../../..{outside / path.name}"),
        "another process's": lambda path: path.symlink_to(f"/proc/{os.getpid()}/cwd/{path.name}"),
        "5 GiB of nothing": _hole,
    }
    for name in (CONFIG_NAME, WEIGHTS_NAME):
        for title, make in made.items():
            yield HostileCase(f"{name[8:14]} {title}", _in_place_of(good, name, make))
    for pickled in ("adapter_model.bin", "adapter_model.pt", "pytorch_model.bin"):
        yield HostileCase(f"only {pickled}", _renamed(good, pickled))
    chain = _in_place_of(good, WEIGHTS_NAME, _chain_out(outside))
    yield HostileCase("a chain of links out", chain)


def _paths(good: GoodAdapter, root: Path, outside: Path) -> Iterator[HostileCase]:
    up = "/.." * len(root.parts)
    for number, path in enumerate(
        (
            *("", ".", "..", "relative", "../..", "~", "~/x", "/", "//", "/etc", "/proc/self"),
            *(f"{root}/../{outside.name}", f"{root}{up}{outside}", f"{root}/nothing", str(root)),
            *(str(outside), f"/proc/self/root{outside}", f"{root}/\0", f"{root}/half\ud800"),
            *(
                f"file://{root}",
                f"http://127.0.0.1/{root}",
                f"{root}/{'x' * 300}",
                "/" + "x" * 70_000,
            ),
            *(f"{root}/{'x/' * 1900}", f"{root}/a\n", f"{root}/%2e%2e/{outside.name}"),
        )
    ):
        yield HostileCase(f"path {number}", lambda folder: None, path=path)
    for length in range(4050, 4100, 6):
        long = f"{root}/{'x/' * 2100}"[:length]
        yield HostileCase(f"a path of {length}", lambda folder: None, path=long)


def _in_place_of(
    good: GoodAdapter, name: str, make: Callable[[Path], None]
) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        good.case("").write(folder)
        (folder / name).unlink()
        make(folder / name)

    return write


def _renamed(good: GoodAdapter, name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        good.case("").write(folder)
        (folder / WEIGHTS_NAME).rename(folder / name)

    return write


def _chain_out(outside: Path) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        (path.parent / "next").symlink_to(outside)
        path.symlink_to(f"next/{path.name}")

    return make


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket has at most 107 characters
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def _hole(path: Path) -> None:
    with path.open("wb") as file:
        file.write(pack({}))
        file.truncate(5 << 30)
