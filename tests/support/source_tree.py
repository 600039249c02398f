"""Finds the project's own files and reads their structure, for the tests of the architecture."""

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

IGNORED_FOLDERS = {"node_modules", "build", "dist", "__pycache__", "runs", "checkpoints"}
GENERATED = ROOT / "protos" / "gen"


def package_folders() -> list[Path]:
    """The packages of the wheel, as pyproject.toml lists them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [
        ROOT / path for path in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    ]


def own_files(folder: Path = ROOT) -> Iterator[Path]:
    """Every file written by hand: no hidden folders, no environments, nothing generated."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name != ".ci"
            if not hidden and path.name not in IGNORED_FOLDERS and path != GENERATED:
                yield from own_files(path)
        else:
            yield path


def python_files() -> list[Path]:
    return [path for path in own_files() if path.suffix == ".py"]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def exceptions() -> dict[str, dict[str, str]]:
    """Rule -> place -> reason, from tests/architecture/exceptions.toml."""
    text = (ROOT / "tests" / "architecture" / "exceptions.toml").read_text()
    tables: dict[str, dict[str, str]] = tomllib.loads(text)
    return tables


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method, named ``Class.method``."""

    name: str
    num_lines: int
    """Lines of signature and body; the docstring is not counted, nor are decorators."""


def functions(source: str) -> Iterator[Function]:
    yield from _functions(ast.parse(source), "")


def _functions(node: ast.AST, prefix: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{child.name}"
            assert child.end_lineno is not None
            num_lines = child.end_lineno - child.lineno + 1 - _docstring_lines(child)
            yield Function(name, num_lines)
            yield from _functions(child, f"{name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(node) is None:
        return 0
    first = node.body[0]
    assert first.end_lineno is not None
    return first.end_lineno - first.lineno + 1


def imported_names(source: str) -> Iterator[str]:
    """Dotted names that a source imports, wherever in it: ``a.b`` for ``from a import b``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
