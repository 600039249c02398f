"""Nothing in the tree depends on, or tells of, the machine where it was written."""

import re
from pathlib import Path

import pytest

from support.source_tree import own_files, relative

FORBIDDEN = {
    "an absolute path of one machine": re.compile(r"(?<![\w.$}])/(?:home|root|Users)/[\w.-]+"),
    "a package index: its choice is the user's": re.compile(
        r"(?:--(?:extra-)?index-url|--find-links)[ =]|https?://[\w.-]*(?:registry|pypi)[\w.-]*"
    ),
    "unfinished work": re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b"),
    "unresolved merge": re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE),
}

# Data, and the texts that a model is trained on, are not prose about this project.
BINARY = {".safetensors", ".binpb", ".png", ".gz", ".so"}
MAX_BYTES = 1_000_000


def findings(text: str) -> list[str]:
    return [
        f"{meaning}: {match.group()!r}"
        for meaning, pattern in FORBIDDEN.items()
        for match in pattern.finditer(text)
    ]


def test_files_hold_no_forbidden_text() -> None:
    bad = {}
    for path in own_files():
        if path == Path(__file__) or path.suffix in BINARY or path.stat().st_size > MAX_BYTES:
            continue
        if found := findings(path.read_text(encoding="utf-8")):
            bad[relative(path)] = found
    assert bad == {}


@pytest.mark.parametrize(
    "text",
    [
        "see /home/me/model",
        "path=/root/cache",
        "pip install --index-url x",
        "https://registry.example.org/x",
        "# TO" + "DO later",
        "<<<<<<< ours",
    ],
)
def test_forbidden_text_is_found(text: str) -> None:
    assert findings(text)


@pytest.mark.parametrize(
    "text", ["$HOME/root/x", "https://github.com/a/b", "src/root/x.py", "{base}/root/x"]
)
def test_other_text_is_not(text: str) -> None:
    assert findings(text) == []
