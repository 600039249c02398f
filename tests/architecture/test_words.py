"""Names and sentences follow docs/glossary.md and the rules of CONTRIBUTING.md."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.source_tree import exceptions, package_folders, relative

PACKAGES = [folder for folder in package_folders() if folder.name != "pagewire_protos"]
MAX_POSITIONAL = 4
MAX_SENTENCE_WORDS = 30

BANNED_PARTS = {"told", "tell", "tells", "telling", "untold", "tray", "letting", "acquit", "accuse"}
"""Words that no identifier contains: docs/glossary.md has the field's terms for them."""

BANNED_WORDS = re.compile(
    r"\b(nobody|somebody|whoever|told|untold|is none|are none)\b", re.IGNORECASE
)
"""Words that no docstring and no comment contains."""

RELATIVE = re.compile(r"(What|Who|Whose|Whom|Where|Whether|How|Which|When|Those|That)\b")
"""A sentence that opens with one of these has a clause as its subject."""


def sources(package: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(package.rglob("*.py")):
        yield relative(path), path.read_text()


def identifiers(source: str) -> Iterator[str]:
    """The names that a file defines: functions, classes, parameters, variables, attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda folder: folder.name)
def test_identifiers_are_words_of_the_field(package: Path) -> None:
    found = {
        (place, name)
        for place, source in sources(package)
        for name in identifiers(source)
        if words_of(name) & BANNED_PARTS
    }
    assert found == set()


def prose(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of comments and docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else ():
            value = child.value if isinstance(child, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value


@pytest.mark.parametrize("package", PACKAGES, ids=lambda folder: folder.name)
def test_prose_names_what_it_speaks_of(package: Path) -> None:
    found = [
        f"{place}:{line}: {match.group(0)}"
        for place, source in sources(package)
        for line, text in prose(source)
        for match in BANNED_WORDS.finditer(text)
    ]
    assert found == []


def sentences(text: str) -> list[str]:
    """The sentences of the paragraphs of a docstring; tables, lists and sections are none."""
    paragraphs = [p for p in text.split("\n\n") if not re.match(r"\s*([-|*>]|\w+:\n| {4})", p)]
    return [s for p in paragraphs for s in re.split(r"(?<=[.:;])\s+", " ".join(p.split())) if s]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda folder: folder.name)
def test_module_docstrings_are_plain_sentences(package: Path) -> None:
    wrong = []
    for place, source in sources(package):
        for sentence in sentences(ast.get_docstring(ast.parse(source)) or "x" * 3):
            if RELATIVE.match(sentence) or len(sentence.split()) > MAX_SENTENCE_WORDS:
                wrong.append(f"{place}: {sentence}")
    assert wrong == []


def long_constructors(source: str) -> Iterator[str]:
    """Classes whose constructor takes more than four arguments by position."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                is_init = isinstance(member, ast.FunctionDef) and member.name == "__init__"
                if is_init and len(member.args.args) - 1 > MAX_POSITIONAL:
                    yield node.name
            if any(is_positional_dataclass(one) for one in node.decorator_list):
                fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
                if sum(one.value is None for one in fields) > MAX_POSITIONAL:
                    yield node.name


def is_positional_dataclass(decorator: ast.expr) -> bool:
    text = ast.unparse(decorator)
    return text.startswith("dataclass") and "kw_only=True" not in text


@pytest.mark.parametrize("package", PACKAGES, ids=lambda folder: folder.name)
def test_long_constructors_take_keywords(package: Path) -> None:
    allowed = exceptions()["positional_constructors"]
    found = {
        f"{place}::{name}"
        for place, source in sources(package)
        for name in long_constructors(source)
    }
    assert found - set(allowed) == set()


def test_a_class_name_has_one_meaning() -> None:
    places = defaultdict(set)
    for package in PACKAGES:
        for place, source in sources(package):
            for node in ast.parse(source).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].add(place)
    homonyms = {name for name, files in places.items() if len(files) > 1}
    assert homonyms == set(exceptions()["mirrored_classes"])
