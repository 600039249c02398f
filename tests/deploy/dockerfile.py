"""Reads Dockerfiles and .dockerignore as far as the tests of ours ask. Runs nothing."""

import json
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction: `word` in capitals, and what stands behind it on one line."""

    word: str
    rest: str


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """The instructions before the first FROM, and those of each stage, its FROM first."""

    head: tuple[Step, ...]
    stages: tuple[tuple[Step, ...], ...]

    @property
    def steps(self) -> list[Step]:
        """All of them."""
        return [*self.head, *(step for stage in self.stages for step in stage)]

    def all_of(self, word: str) -> list[str]:
        """What stands behind every `word` of the file."""
        return [step.rest for step in self.steps if step.word == word]

    def last(self, word: str) -> str:
        """What stands behind the only `word` of the last stage."""
        (rest,) = [step.rest for step in self.stages[-1] if step.word == word]
        return rest

    def entry_point(self) -> list[str]:
        """The words of ENTRYPOINT, which has to be in the form without a shell."""
        words: list[str] = json.loads(self.last("ENTRYPOINT"))
        return words


def read_dockerfile(path: Path) -> Dockerfile:
    """Parse a Dockerfile."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    steps = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        word, _, rest = line.partition(" ")
        assert word.isupper(), f"{path}: {line!r} is no instruction"
        steps.append(Step(word, " ".join(rest.split())))
    starts = [index for index, step in enumerate(steps) if step.word == "FROM"]
    ends = [*starts[1:], len(steps)]
    stages = tuple(tuple(steps[low:high]) for low, high in zip(starts, ends, strict=True))
    return Dockerfile(tuple(steps[: starts[0]]), stages)


class Context:
    """What is sent to a build: all that a .dockerignore does not keep out."""

    def __init__(self, path: Path) -> None:
        lines = [line.strip() for line in path.read_text().splitlines()]
        self._rules = [
            (not line.startswith("!"), _pattern(line.removeprefix("!")))
            for line in lines
            if line and not line.startswith("#")
        ]

    def holds(self, path: str) -> bool:
        """Whether a file is sent. The last rule that fits it, or a folder above it, decides."""
        parts = path.split("/")
        prefixes = ["/".join(parts[: index + 1]) for index in range(len(parts))]
        is_out = False
        for keeps_out, pattern in self._rules:
            if any(pattern.fullmatch(prefix) for prefix in prefixes):
                is_out = keeps_out
        return not is_out


def _pattern(text: str) -> "re.Pattern[str]":
    pieces = {"**/": "(?:.*/)?", "*": "[^/]*"}
    parts = re.split(r"(\*\*/|\*)", text.strip("/"))
    return re.compile("".join(pieces.get(part) or re.escape(part) for part in parts))
