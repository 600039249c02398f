"""A folder holds few files, and imports between the parts of a package run one way."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from support.source_tree import exceptions, own_files, package_folders, relative

MAX_FILES = 25

Graph = dict[str, set[str]]
"""Parts of one package, files or folders -> the parts that they import."""


def large_folders() -> dict[str, int]:
    sizes = Counter(relative(path.parent) for path in own_files())
    return {folder: count for folder, count in sizes.items() if count > MAX_FILES}


def test_a_folder_holds_few_files() -> None:
    allowed = exceptions()["folder_size"]
    assert {k: v for k, v in large_folders().items() if k not in allowed} == {}


def test_no_exception_is_stale() -> None:
    assert set(exceptions()["folder_size"]) - set(large_folders()) == set()
    assert set(exceptions()["import_cycles"]) - set(cyclic_packages(graphs(sources()))) == set()


def sources() -> dict[str, str]:
    """Module -> source text, of all packages of the wheel but the generated one."""
    found = {}
    for package in package_folders():
        if package.name == "pagewire_protos":
            continue
        for path in package.rglob("*.py"):
            parts = path.relative_to(package.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path.read_text()
    return found


def imported_modules(source: str, modules: set[str]) -> Iterator[str]:
    """The modules that a file imports, inside functions and for types only included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            yield from names
            if not names and node.module in modules:
                yield node.module


def graphs(files: dict[str, str]) -> dict[str, Graph]:
    """Package -> which of its parts import which others."""
    found: dict[str, Graph] = defaultdict(lambda: defaultdict(set))
    for module, source in files.items():
        for other in imported_modules(source, set(files)):
            ours, theirs = module.split("."), other.split(".")
            depth = 0
            while depth < min(len(ours), len(theirs)) and ours[depth] == theirs[depth]:
                depth += 1
            # A package's own __init__ has no name below the package: it may import its parts.
            if 0 < depth < min(len(ours), len(theirs)):
                found[".".join(ours[:depth])][ours[depth]].add(theirs[depth])
    return found


def cyclic_parts(graph: Graph) -> set[str]:
    """The parts that can be reached from themselves."""
    return {part for part in graph if part in reachable(graph, part)}


def reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    todo = [start]
    while todo:
        new = graph.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return seen


def cyclic_packages(found: dict[str, Graph]) -> dict[str, set[str]]:
    cycles = {package: cyclic_parts(graph) for package, graph in found.items()}
    return {package: parts for package, parts in cycles.items() if parts}


def test_imports_between_parts_of_a_package_run_one_way() -> None:
    allowed = exceptions()["import_cycles"]
    cycles = cyclic_packages(graphs(sources()))
    assert {k: v for k, v in cycles.items() if k not in allowed} == {}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"p.a.x": "from p.b.y import Y", "p.b.y": ""}, {}),
        ({"p.a.x": "from p.b import y", "p.b.y": "import p.a.z", "p.a.z": ""}, {"p": {"a", "b"}}),
        (
            {
                "p.x": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.y import Y",
                "p.y": "def f():\n    from p import x",
            },
            {"p": {"x", "y"}},
        ),
        ({"p": "from p.x import X", "p.x": "", "p.q": "from p import X"}, {}),
    ],
)
def test_cycles_are_found(files: dict[str, str], expected: dict[str, set[str]]) -> None:
    assert cyclic_packages(graphs(files)) == expected
