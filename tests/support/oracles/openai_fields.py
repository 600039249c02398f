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
    "responses": ("openai.types.responses.response_create_params", "ResponseCreateParamsBase", 3),
}
"""Module, class and depth of each body."""
PARTS: Final = {"content", "output", "summary"}
"""Fields of items of Responses that hold parts."""
INNER: Final = ("input.", "tools.", "tool_choice.")
"""Objects of Responses whose fields are listed by type."""
STREAMED: Final = ("chat", "completions", "responses")


def read_fields() -> dict[str, list[str]]:
    """Return the fields in the file, by body."""
    fields: dict[str, list[str]] = json.loads(FILE.read_text())["fields"]
    return fields


def read_kinds() -> dict[str, dict[str, list[str]]]:
    """Return, by place in the body of Responses, the fields of each type of object there."""
    kinds: dict[str, dict[str, list[str]]] = json.loads(FILE.read_text())["kinds"]
    return kinds


def kinds_of(hint: Any) -> dict[str, set[str]]:
    """Return the fields of the objects in a type, by their `type`; "" where it has no name."""
    found: dict[str, set[str]] = {}
    for each in _dicts(hint):
        fields = typing.get_type_hints(each)
        names = [one for one in _literals(fields.get("type")) if isinstance(one, str)]
        for name in names or [""]:
            found.setdefault(name, set()).update(fields)
    return found


def response_kinds() -> dict[str, dict[str, list[str]]]:
    """Return the objects inside the body of Responses, by place and type."""
    module, name, _ = BODIES["responses"]
    body = typing.get_type_hints(getattr(importlib.import_module(module), name))
    found = {place: kinds_of(body[place]) for place in ("input", "tools", "tool_choice")}
    for item in _dicts(body["input"]):
        hints = typing.get_type_hints(item)
        for field in PARTS.intersection(hints):
            for kind in _literals(hints["type"]):
                parts = found.setdefault(f"input.{kind}.{field}", {})
                for type_, fields in kinds_of(hints[field]).items():
                    parts.setdefault(type_, set()).update(fields)
    return {
        place: {kind: sorted(fields) for kind, fields in sorted(kinds.items())}
        for place, kinds in sorted(found.items())
        if kinds
    }


def _literals(hint: Any) -> list[Any]:
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [one for inner in typing.get_args(hint) for one in _literals(inner)]


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
            found = {one for one in found if not one.startswith(INNER)}
        fields[body] = sorted(found)
    version = importlib.import_module("openai").__version__
    found = {"openai": version, "fields": fields, "kinds": response_kinds()}
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
