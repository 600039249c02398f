"""Whether an answer has the shape that OpenAI publishes for it, and whether a stream keeps the
rules. Reads the schemas beside it; knows nothing of Pagewire but the fields in extras.yaml."""

import copy
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

FOLDER = Path(__file__).with_name("openai_schema")
EXTRAS = "extras.yaml"

Json = dict[str, Any]


def published() -> dict[str, Json]:
    """Return every schema by name, as written: without extras, not closed."""
    return copy.deepcopy(_read())


@cache
def _read() -> dict[str, Json]:
    found: dict[str, Json] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        if path.name == EXTRAS:
            continue
        schemas = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert not schemas.keys() & found.keys(), f"{path.name} defines a shape anew"
        found.update(schemas)
    return found


def extras() -> dict[str, Json]:
    """Return what Pagewire adds: field to schema, by name of the shape."""
    loaded: dict[str, Json] = yaml.safe_load((FOLDER / EXTRAS).read_text(encoding="utf-8"))
    return loaded


def problems(name: str, value: Any) -> list[str]:
    """Return what is wrong with a value of the shape `name`, each with its place."""
    errors = sorted(
        _validator(name).iter_errors(value), key=lambda error: list(error.absolute_path)
    )
    return [f"{error.json_path}: {error.message}" for error in errors]


def check(name: str, value: Any) -> None:
    """Assert that a value has the shape `name`."""
    found = problems(name, value)
    assert not found, f"no {name}:\n" + "\n".join(found) + f"\n{json.dumps(value)[:2000]}"


def check_event(value: Any) -> None:
    """Assert that a value is an event of a streamed response."""
    assert value.get("type") in events(), f"no event is called {value.get('type')!r}"
    check(value["type"], value)


def events() -> list[str]:
    """Return the names of the events of a streamed response."""
    return [name for name in published() if name == "error" or name.startswith("response.")]


def read_stream(raw: str) -> list[Any]:
    """Return the JSON values of an event stream, after checks of its framing: nothing but data and
    comments, and [DONE] at the end unless the last value is an error."""
    assert raw.endswith("\n\n"), f"a stream ends with a whole event, not with {raw[-40:]!r}"
    blocks = [block for block in raw.removesuffix("\n\n").split("\n\n") if block[:1] != ":"]
    assert all(block.startswith("data: ") and "\n" not in block for block in blocks), blocks
    texts = [block.removeprefix("data: ") for block in blocks]
    values = [json.loads(text) for text in texts if text != "[DONE]"]
    if values and "error" in values[-1]:
        assert "[DONE]" not in texts, "an error is the last event of its stream"
    else:
        assert texts.index("[DONE]") == len(texts) - 1, "exactly one [DONE], at the end"
    return values


def check_stream(name: str, values: Sequence[Json], *, has_usage: bool) -> None:
    """Assert that the chunks of a complete chat or completion stream keep the rules.

    Args:
        name: ChatChunk or CompletionChunk.
        values: All chunks, in order.
        has_usage: A usage chunk was asked for.
    """
    for value in values:
        check(name, value)
    heads = {(value["id"], value["object"], value["created"], value["model"]) for value in values}
    assert len(heads) == 1, f"id, object, created and model change in a stream: {heads}"
    bodies = values
    if has_usage:
        *bodies, last = values
        assert last["choices"] == [], "the usage chunk has no choices"
        assert last["usage"]["total_tokens"] == (
            last["usage"]["prompt_tokens"] + last["usage"]["completion_tokens"]
        )
        if name == "ChatChunk":
            assert all(body["usage"] is None for body in bodies), "usage is null before its chunk"
        else:
            assert not any("usage" in body for body in bodies), "usage may not be null here"
    else:
        assert not any("usage" in body for body in bodies), "nobody asked for usage"
    assert all(body["choices"] for body in bodies), "only the usage chunk has no choices"
    _check_choices([choice for body in bodies for choice in body["choices"]], name == "ChatChunk")


def _check_choices(choices: Sequence[Mapping[str, Any]], is_chat: bool) -> None:
    """Assert that each choice names its role first and ends once, with its last chunk."""
    for index in sorted({choice["index"] for choice in choices}):
        own = [choice for choice in choices if choice["index"] == index]
        reasons = [choice["finish_reason"] for choice in own]
        assert reasons[-1] is not None, f"choice {index} never ends: {reasons}"
        assert not any(reasons[:-1]), f"choice {index} goes on after its end: {reasons}"
        if is_chat:
            roles = ["role" in choice["delta"] for choice in own]
            assert roles == [True] + [False] * (len(own) - 1), f"choice {index}: role comes first"
            _check_calls([call for choice in own for call in choice["delta"].get("tool_calls", ())])


def _check_calls(deltas: Sequence[Mapping[str, Any]]) -> None:
    """Assert that the first piece of each tool call, and no other, has its id, type and name, and
    that calls come in order."""
    begun: list[int] = []
    for delta in deltas:
        named = ("id" in delta, "type" in delta, "name" in delta.get("function", {}))
        is_first = delta["index"] not in begun
        assert named == (is_first,) * 3, f"first piece: {is_first}, id, type and name: {named}"
        if is_first:
            begun.append(delta["index"])
        assert begun[-1] == delta["index"], "pieces of a call after the next one began"
    assert begun == list(range(len(begun)))


@cache
def _validator(name: str) -> Draft202012Validator:
    definitions = _definitions()
    assert name in definitions, f"no shape is called {name}"
    schema = {"$ref": f"#/$defs/{name}", "$defs": definitions}
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@cache
def _definitions() -> dict[str, Json]:
    found = published()
    for name, fields in extras().items():
        found[name]["properties"].update(fields)
    return {name: _closed(schema) for name, schema in found.items()}


def _closed(schema: Json) -> Json:
    if "properties" not in schema:
        return schema
    return {"type": "object", "additionalProperties": False, **schema}
