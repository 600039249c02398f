"""Bodies for the HTTP API, most of them bad, made from the models of the bodies: every field,
nested ones too, times every kind of value. What must become of each is said where it is known."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from pagewire_frontend.http.openai.lora import LoadAdapterBody, UnloadAdapterBody
from pagewire_frontend.http.openai.schemas import ChatBody, CompletionBody, EmbeddingBody
from pagewire_frontend.http.openai.tokenization import DetokenizeBody, TokenizeBody
from pagewire_frontend.http.operators.workers import UpdateWeightsBody
from pagewire_frontend.http.pooling.schemas import (
    ClassifyBody,
    PoolingBody,
    RerankBody,
    ScoreBody,
)
from pagewire_frontend.http.responses.schemas import ResponsesBody

Json = dict[str, Any]
Path = tuple[str | int, ...]

MODELS: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/embeddings": EmbeddingBody,
    "/v1/responses": ResponsesBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
    "/score": ScoreBody,
    "/v1/score": ScoreBody,
    "/rerank": RerankBody,
    "/v1/rerank": RerankBody,
    "/v2/rerank": RerankBody,
    "/pooling": PoolingBody,
    "/classify": ClassifyBody,
    "/v1/load_lora_adapter": LoadAdapterBody,
    "/v1/unload_lora_adapter": UnloadAdapterBody,
    "/update_weights": UpdateWeightsBody,
}
SAME = {"/v1/score", "/v1/rerank", "/v2/rerank"}
"""Further paths of an endpoint: nothing new is learned from each of their fields."""
UNSERVED = {"/classify", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/update_weights"}
"""Endpoints that refuse whatever the body: of a model without a classification head, whose fields
are those of /pooling, of a frontend without adapters, and of weights that are nowhere."""
_TURNS = [{"role": "user", "content": "hello"}]
VALID: dict[str, Json] = {
    "/v1/chat/completions": {"messages": _TURNS, "max_tokens": 1, "seed": 1},
    "/v1/completions": {"prompt": "hello", "max_tokens": 1, "seed": 1},
    "/v1/embeddings": {"input": "hello"},
    "/v1/responses": {"input": "hello", "max_output_tokens": 1, "seed": 1},
    "/tokenize": {"prompt": "hello"},
    "/detokenize": {"tokens": [5, 6]},
    "/score": {"queries": "hello", "documents": ["world"]},
    "/v1/score": {"queries": "hello", "documents": ["world"]},
    "/rerank": {"query": "hello", "documents": ["world"]},
    "/v1/rerank": {"query": "hello", "documents": ["world"]},
    "/v2/rerank": {"query": "hello", "documents": ["world"]},
    "/pooling": {"input": "hello"},
    "/classify": {"input": "hello"},
    "/v1/load_lora_adapter": {"lora_name": "a", "lora_path": "/a"},
    "/v1/unload_lora_adapter": {"lora_name": "a"},
    "/update_weights": {"path": "/nowhere"},
}
_FUNCTION = {"name": "look", "parameters": {"type": "object", "properties": {}}}
# Fields that are only read together with these.
_WITH: dict[str, Json] = {
    "json_schema": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {"type": "object"}},
        }
    },
    "stream_options": {"stream": True},
    "top_logprobs": {"logprobs": True},
    "tool_calls": {"messages": [{"role": "assistant", "content": ""}]},
}
_CHAT_TOOLS = {"tools": [{"type": "function", "function": _FUNCTION}]}
_RESPONSE_TOOLS = {"tools": [{"type": "function", **_FUNCTION}]}


@dataclass(frozen=True, slots=True)
class Literally:
    """Bytes that stand for a value, for what no JSON writer would write."""

    data: bytes


@dataclass(frozen=True, slots=True)
class BadBody:
    """One body.

    Attributes:
        target: Path of the endpoint.
        what: Field and kind, for messages.
        data: The body itself.
        is_valid: Whether it must be taken; None where that is not said here.
        param: The field that a refusal must name; "" where that is not said here.
    """

    target: str
    what: str
    data: bytes = field(repr=False)
    is_valid: bool | None = None
    param: str | None = ""


KINDS: dict[str, Any] = {
    "null": None,
    "true": True,
    "zero": 0,
    "one": 1,
    "minus one": -1,
    "half": 1.5,
    "tiny": 5e-324,
    "minus zero": -0.0,
    "2**31": 2**31,
    "2**63": 2**63,
    "2**64": 2**64,
    "-2**63-1": -(2**63) - 1,
    "300 digits": 10**300,
    "1e308": 1e308,
    "empty text": "",
    "text": "text",
    "digits": "12",
    "NUL": "a\0b",
    "long text": "word " * 4000,
    "far planes": "\U0001f600\u202e\ufeff\U0010ffff",
    "empty list": [],
    "nulls": [None, None],
    "numbers": [1, -1, 10**20],
    "texts": ["", "a"],
    "mixed": [1, "a", None, {}],
    "long list": [1] * 5000,
    "empty object": {},
    "object": {"a": {"b": [1]}},
    "digits of names": {"9" * 5000: 1, "1": 1e308},
    "many names": {str(number): number for number in range(2000)},
    "numbers inside": {"type": "object", "a": [10**300, {"b": 2**64}]},
    "150 deep": json.loads("[" * 151 + "]" * 151),
}
# What no body may hold, wherever it stands.
NO_JSON: dict[str, bytes] = {
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "1e999": b"1e999",
    "5000 digits": b"9" * 5000,
    "bad UTF-8": b'"a\xff\xfe"',
    "overlong UTF-8": b'"\xc0\x80"',
    "surrogate": b'"\\ud800"',
    "UTF-8 surrogate": b'"\xed\xa0\x80"',
    "300 deep": b"[" * 300 + b"]" * 300,
    "100000 deep": b"[" * 100_000,
    "duplicate": b'{"a":1,"a":1}',
    "nothing": b"",
    "bare word": b"yes",
    "half a text": b'"abc',
}


def field_bodies() -> Iterator[BadBody]:
    """Every field of every body times every kind."""
    for target, model in MODELS.items():
        if target in SAME | UNSERVED:
            continue
        schema = model.model_json_schema()
        for path, described, is_required in _places(schema, schema.get("$defs", {})):
            yield from _bodies_of_place(target, path, described, is_required, schema)


def _bodies_of_place(
    target: str, path: Path, described: Json, is_required: bool, schema: Json
) -> Iterator[BadBody]:
    place, param = ".".join(map(str, path)), str(path[0])
    defs = schema.get("$defs", {})
    for kind, value in KINDS.items():
        is_wrong = not _can_be(value, described, defs)
        data = body_bytes(_with_value(target, path, value, schema))
        taken, named = (False, param) if is_wrong else (None, "")
        yield BadBody(target, f"{place}: {kind}", data, taken, named)
    for index, (kind, literal) in enumerate(NO_JSON.items()):
        if len(path) > 1 and (index + len(place)) % 3:
            # The parser knows no fields: below the first level some of the kinds will do.
            continue
        if isinstance(path[-1], int) and not literal:
            # A list without its only item is a list.
            continue
        data = body_bytes(_with_value(target, path, Literally(literal), schema))
        yield BadBody(target, f"{place}: {kind}", data, False, None)
    if len(path) == 1:
        whole = _with_value(target, path, KINDS["one"], schema)
        data = body_bytes(whole)[:-1] + b", " + json.dumps(param).encode() + b":1}"
        yield BadBody(target, f"{place}: twice", data, False, None)
    if is_required:
        data = body_bytes(_with_value(target, path, _ABSENT, schema))
        yield BadBody(target, f"{place}: missing", data, False, param)


_ABSENT = object()


def _places(schema: Json, defs: Json, path: Path = ()) -> Iterator[tuple[Path, Json, bool]]:
    """Yield the path of each field, also of those inside it, its schema and whether it must be."""
    for name, described in schema["properties"].items():
        yield (*path, name), described, name in schema.get("required", ())
        yield from _places_inside((*path, name), described, defs)


def _places_inside(path: Path, described: Json, defs: Json) -> Iterator[tuple[Path, Json, bool]]:
    seen = set()
    for option in _options(described, defs):
        if "properties" in option:
            yield from _places(option, defs, path)
        inner = option.get("items") or option.get("additionalProperties")
        key: str | int = 0 if option.get("type") == "array" else "1"
        if isinstance(inner, dict) and key not in seen:
            seen.add(key)
            # Other forms of the same field take other items.
            yield (*path, key), {} if len(_options(described, defs)) > 3 else inner, False
            yield from _places_inside((*path, key), inner, defs)


def _options(described: Json, defs: Json) -> list[Json]:
    """Return the schemas of which a value meets one, without references."""
    if "$ref" in described:
        return _options(defs[described["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in described:
        return [one for option in described["anyOf"] for one in _options(option, defs)]
    return [described]


def _can_be(value: Any, described: Json, defs: Json) -> bool:
    """Return whether the type alone allows a value."""
    types = {
        bool: ("boolean",),
        int: ("integer", "number"),
        float: ("number",),
        str: ("string",),
        list: ("array",),
        dict: ("object",),
        type(None): ("null",),
    }[type(value)]
    for option in _options(described, defs):
        if "type" not in option and "enum" not in option and "const" not in option:
            return True
        given = (option["const"],) if "const" in option else option.get("enum")
        if option.get("type", types[0]) in types and (given is None or value in given):
            return True
    return False


def _with_value(target: str, path: Path, value: Any, schema: Json) -> Json:
    """Return a body that is valid but for what is put at `path`."""
    body = copy.deepcopy(VALID[target])
    for name, others in _WITH.items():
        if name in path:
            body.update(copy.deepcopy(others))
    if path[0] == "tool_choice":
        body.update(_RESPONSE_TOOLS if target == "/v1/responses" else _CHAT_TOOLS)
    defs = schema.get("$defs", {})
    here: Any = body
    described = schema
    for key, after in zip(path, (*path[1:], None), strict=True):
        described = _inner(described, key, after, defs)
        if after is None:
            break
        wanted = list if isinstance(after, int) else dict
        found = here.get(key) if isinstance(here, dict) else (here or [None])[0]
        if not isinstance(found, wanted):
            found = wanted() if wanted is list else _sample(described, defs, after)
            _put(here, key, found)
        here = found
    _put(here, path[-1], value)
    return body


def _put(container: Any, key: str | int, value: Any) -> None:
    if value is _ABSENT:
        container.pop(key, None)
    elif isinstance(container, list) and not container:
        container.append(value)
    else:
        container[key] = value


def _inner(described: Json, key: str | int, after: str | int | None, defs: Json) -> Json:
    """Return the schema of what is at `key`, in the form that has `after`."""
    found: Json = {}
    for option in _options(described, defs):
        inner = option.get("properties", {}).get(key)
        if inner is None:
            inner = option.get("items") if isinstance(key, int) else None
        if isinstance(inner, dict):
            found = inner
    return found


def _sample(described: Json, defs: Json, name: str | int) -> Any:
    """Return the smallest object that meets a schema in the form that has the field `name`."""
    for option in _options(described, defs):
        if name in option.get("properties", {}):
            return {
                key: _least(option["properties"][key], defs) for key in option.get("required", ())
            }
    return {}


def _least(described: Json, defs: Json) -> Any:
    option = _options(described, defs)[0]
    if "const" in option or "enum" in option:
        return option.get("const") or option["enum"][0]
    if "properties" in option:
        return {key: _least(option["properties"][key], defs) for key in option.get("required", ())}
    values = {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    return values[option["type"]]


def body_bytes(value: Any) -> bytes:
    """Return a value as JSON, with `Literally` as it is."""
    literals: list[bytes] = []

    def mark(item: Any) -> str:
        literals.append(item.data)
        return f"@literally {len(literals) - 1}@"

    data = json.dumps(value, default=mark).encode()
    for number, literal in enumerate(literals):
        data = data.replace(f'"@literally {number}@"'.encode(), literal)
    return data
