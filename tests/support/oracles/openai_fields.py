"""The fields of the bodies that OpenAI's API description has, as its Python package types them.

    cd tests && python -m support.oracles.openai_fields

writes openai_fields.json beside this file. Dots stand for nesting; lists are not counted.
"""

import importlib
import json
import typing
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("openai_fields.json")
BODIES: Final = {
    "chat": ("openai.types.chat.completion_create_params", "CompletionCreateParamsBase", 3),
    "completions": ("openai.types.completion_create_params", "CompletionCreateParamsBase", 3),
    "embeddings": ("openai.types.embedding_create_params", "EmbeddingCreateParams", 3),
    "responses": ("openai.types.responses.response_create_params", "ResponseCreateParamsBase", 1),
}
"""Module, class and depth of each body; items and tools of Responses have pages of their own."""
STREAMED: Final = ("chat", "completions", "responses")


def read_fields() -> dict[str, list[str]]:
    """Return the fields in the file, by body."""
    fields: dict[str, list[str]] = json.loads(FILE.read_text())["fields"]
    return fields


def walk(kind: Any, depth: int, prefix: str = "") -> set[str]:
    """Return the fields of a TypedDict, and of those inside it."""
    found: set[str] = set()
    for name, hint in typing.get_type_hints(kind).items():
        found.add(prefix + name)
        for inner in _dicts(hint) if depth else ():
            found |= walk(inner, depth - 1, f"{prefix}{name}.")
    return found


def _dicts(hint: Any) -> list[Any]:
    """Return the TypedDicts in a type."""
    if hasattr(hint, "__required_keys__"):
        return [hint]
    inner = (item for item in typing.get_args(hint) if not isinstance(item, str))
    return [found for item in inner for found in _dicts(item)]


def main() -> None:
    """Write the file."""
    fields = {}
    for body, (module, name, depth) in BODIES.items():
        found = walk(getattr(importlib.import_module(module), name), depth)
        if body in STREAMED:
            found.add("stream")
        if body == "responses":
            found = {one for one in found if not one.startswith(("input.", "tools."))}
        fields[body] = sorted(found)
    version = importlib.import_module("openai").__version__
    FILE.write_text(json.dumps({"openai": version, "fields": fields}, indent=1) + "\n")


if __name__ == "__main__":
    main()
