"""The documents name only files, modules, classes, flags and links that exist."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import pytest

from pagewire.cli.bench import BenchConfig
from pagewire.cli.generation import GenerationConfig
from pagewire.vllm_names.other_programs import FLAG_HINTS
from pagewire.vllm_names.table import ROWS
from pagewire_frontend.config import FrontendConfig
from pagewire_kvstore.config import KvStoreConfig
from pagewire_scheduler.config import SchedulerConfig
from pagewire_shared.process.settings import flag_of
from pagewire_worker.config import WorkerConfig
from support.source_tree import ROOT, own_files, package_folders, relative

DOCUMENTS = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "helm" / "pagewire" / "README.md"]
    + [
        path
        for pattern in ("*.md", "*/*.md")
        for path in (ROOT / "docs").glob(pattern)
        if path.name != "compile-table.md" and path.parent.name != "adr"
    ]
    + list((ROOT / "services").glob("*/README.md"))
)
RECORDS = sorted((ROOT / "docs" / "adr").glob("*.md"))
CONFIGS = (
    *(BenchConfig, GenerationConfig),
    *(FrontendConfig, KvStoreConfig, SchedulerConfig, WorkerConfig),
)

MAX_WIDTH = 110
"""Characters in a line of prose; tables, code and headings may be longer."""

PATH = re.compile(
    r"[\w./*-]*\w\.(?:py|md|proto|toml|yaml|h|cpp|sh|Dockerfile)(?=$|::|:\d)|[\w./-]+/"
)
MODULE = re.compile(r"pagewire_(?:frontend|scheduler|worker|kvstore|shared)(?:\.\w+)+")
CLASS = re.compile(r"(?:[A-Z][a-z0-9]+){2,}(?:\.[a-z_]\w*)?|[A-Z][a-z]+\.[a-z_]\w*")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")

BANNED_WORDS = re.compile(
    r"\b(nobody|somebody|everybody|whoever|told|untold|gives? way)\b", re.IGNORECASE
)
"""Words that stand for a noun that is missing; CONTRIBUTING.md has the rule."""

FOREIGN_FLAGS = {
    "--build",  # docker compose
    *("--from-file", "--from-literal", "--install", "--set", "--watch"),  # helm and kubectl
    *("--http2-prior-knowledge", "--list-methods", "--protocol"),  # buf curl
}
"""Flags of programs that are not part of this project."""

FOREIGN_PATHS = re.compile(
    r"\.|DIR/|blobs/|org/|file\.yaml|docker\.io/|google/protobuf/|build/|checkpoints/|models/builtin/runs/"
    r"|protos/gen/|_pb2"
)
"""Beginnings of paths that are not in the tree: what is built, of other projects, or an example."""


def spans(text: str) -> Iterator[str]:
    """The words in backticks outside of fenced code."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for span in re.findall(r"`([^`\n]+)`", prose):
        yield from span.split()


@cache
def places() -> frozenset[str]:
    """The paths of all files and folders of the tree."""
    files = [path.relative_to(ROOT) for path in own_files()]
    folders = {parent for path in files for parent in path.parents}
    return frozenset(f"/{path.as_posix()}" for path in [*files, *folders])


def is_place(word: str) -> bool:
    """Whether a path, or the end of one, exists; `*` stands for any part of a name."""
    end = "/" + word.strip("/").removeprefix("./")
    if "*" in end:
        pattern = re.compile(".*" + re.escape(end).replace(r"\*", "[^/]*"))
        return any(pattern.fullmatch(place) is not None for place in places())
    return any(place.endswith(end) for place in places())


def named_paths(text: str) -> Iterator[str]:
    for word in spans(text):
        found = PATH.match(word)
        if found and not FOREIGN_PATHS.match(word) and not word.startswith(("/", "-", "$", "<")):
            yield found.group()


def defined_names(path: Path) -> set[str]:
    """The names that a module binds at its top level."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
        names |= {alias.asname or alias.name for alias in getattr(node, "names", ())}
        names.add(getattr(node, "name", ""))
    return names


def is_module(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    package, *parts = dotted.split(".")
    path = next(folder for folder in package_folders() if folder.name == package)
    for i, part in enumerate(parts):
        file = path / f"{part}.py"
        if file.is_file():
            rest = parts[i + 1 :]
            return not rest or rest[0] in defined_names(file)
        path = path / part
    return path.is_dir()


@cache
def sources() -> str:
    """All files but the documents, the tests and the recorded history, as one text."""
    skipped = (ROOT / "tests", ROOT / "protos" / "history")
    return "\n".join(
        path.read_text()
        for path in own_files()
        if path.suffix in {".py", ".proto", ".yaml", ".h", ".cpp", ".tpl"}
        and not any(path.is_relative_to(folder) for folder in skipped)
    )


@cache
def words_of_sources() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", sources()))


@cache
def known_flags() -> frozenset[str]:
    names = {item.name for cls in CONFIGS if is_dataclass(cls) for item in fields(cls)}
    flags = {flag_of(name) for name in names}
    flags |= {f"--no-{flag[2:]}" for flag in flags}
    text = "\n".join(path.read_text() for path in own_files() if path.suffix == ".py")
    flags |= set(re.findall(r"add_argument\(\s*\"(--[a-z0-9-]+)\"", text))
    flags |= {flag_of(name) for name in ROWS} | set(FLAG_HINTS)
    return frozenset(flags | FOREIGN_FLAGS | {"--help"})


def glossary_without_old_words(text: str) -> str:
    """Leave out the columns that are other projects' words and this project's old ones."""
    words, _, renamed = text.partition("## Old word, new word")
    kept = [line.strip("|").rsplit("|", 1)[0] for line in words.splitlines()]
    kept += [line.strip("|").split("|", 1)[-1] for line in renamed.splitlines()]
    return "\n".join(kept)


def read(path: Path) -> str:
    text = path.read_text()
    return glossary_without_old_words(text) if path.name == "glossary.md" else text


@pytest.mark.parametrize("path", [*DOCUMENTS, *RECORDS], ids=relative)
def test_files_that_a_document_names_exist(path: Path) -> None:
    assert [name for name in named_paths(read(path)) if not is_place(name)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_modules_that_a_document_names_exist(path: Path) -> None:
    assert [name for name in MODULE.findall(read(path)) if not is_module(name)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_classes_that_a_document_names_exist(path: Path) -> None:
    named = {word for word in spans(read(path)) if CLASS.fullmatch(word)}
    parts = {part for word in named for part in word.split(".")}
    assert parts - words_of_sources() == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_flags_that_a_document_names_exist(path: Path) -> None:
    if path.name == "wrong-starts.md":
        pytest.skip("it shows flags that do not exist")
    assert set(FLAG.findall(read(path))) - known_flags() == set()


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, flags=re.MULTILINE)
    plain = (re.sub(r"[^\w -]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", [*DOCUMENTS, *RECORDS], ids=relative)
def test_links_of_a_document_lead_somewhere(path: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        target, _, anchor = link.partition("#")
        place = (path.parent / target).resolve() if target else path
        is_foreign = "://" in link
        is_found = place.exists() and (not anchor or anchor in anchors(place))
        if not is_foreign and not is_found:
            broken.append(link)
    assert broken == []


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) of all lines but tables, code and headings."""
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith(("|", "    ", "#")):
            yield number, line


WRAPPED = [path for path in DOCUMENTS if path.name != "predictions.md"]
"""All but the page with lines that a command prints."""


@pytest.mark.parametrize("path", WRAPPED, ids=relative)
def test_prose_is_wrapped(path: Path) -> None:
    lines = prose_lines(path.read_text())
    long = [number for number, line in lines if len(line) > MAX_WIDTH and " " in line.strip()]
    assert long == []


NAMES_BANNED_WORDS = {"CONTRIBUTING.md", "glossary.md"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_prose_names_what_it_speaks_of(path: Path) -> None:
    prose = "\n".join(line for _, line in prose_lines(path.read_text()))
    assert path.name in NAMES_BANNED_WORDS or BANNED_WORDS.findall(prose) == []


def change_lists() -> dict[str, list[str]]:
    """Example -> the paths of its list, from "Where usual changes go" of CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    part = text.partition("## Where usual changes go")[2].partition("\n## ")[0]
    lists = {}
    for section in part.split("\n### ")[1:]:
        title, _, body = section.partition("\n")
        example = re.search(r"\((\S+)\)$", title)
        assert example is not None, title
        paths = (word for word in spans(body) if "/" in word.strip("/") and "." in word)
        lists[example.group(1)] = [path for path in paths if not path.startswith("/")]
    return lists


CHANGES = change_lists()


@pytest.mark.parametrize("example", CHANGES)
def test_every_file_of_a_usual_change_has_its_example(example: str) -> None:
    assert len(CHANGES[example]) >= 4
    spellings = {example, example.replace("_", "-"), example.strip("/")}
    shared_seams = {"slow_tier.py", "app.py"}
    without = [
        path
        for path in CHANGES[example]
        if Path(path).name not in shared_seams
        and not any(word in (ROOT / path).read_text().lower() for word in spellings)
    ]
    assert without == []


def test_contributing_names_every_folder_of_tests() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = [path.name for path in (ROOT / "tests").iterdir() if any(path.glob("*.*"))]
    named = set(re.findall(r"`tests/(\w+)/`", text))
    assert {name for name in folders if not name.startswith(("_", "."))} <= named


def test_missing_names_are_found() -> None:
    assert not is_place("core/planning/no_such_module.py")
    assert is_place("core/planning/planner.py")
    assert is_module("pagewire_shared.process.settings.flag_of")
    assert not is_module("pagewire_shared.process.settings.no_such_name")
    assert not is_module("pagewire_scheduler.no_such_folder")
    assert list(named_paths("see `a/b.py` and `docs/`, not `/v1/x`")) == ["a/b.py", "docs/"]
