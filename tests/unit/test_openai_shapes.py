"""The fixture of published shapes agrees with the types of the openai package, and finds what it is
there to find."""

import copy
import importlib
from typing import Any, get_args

import pytest

from support.oracles.openai_shapes import (
    check_event,
    check_stream,
    extras,
    problems,
    published,
    read_stream,
)

CHOICE = {"index": 0, "delta": {}, "finish_reason": None}
CHUNK = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
CHAT = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "a", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": USAGE,
}


def literals(annotation: Any) -> set[Any]:
    """Return all values of the Literals inside an annotation."""
    found: set[Any] = set()
    for argument in get_args(annotation):
        if isinstance(argument, str | bool | int):
            found.add(argument)
        else:
            found |= literals(argument)
    return found


def python_class(schema: dict[str, Any]) -> Any:
    module, _, name = schema["x-python"].rpartition(".")
    return getattr(importlib.import_module(f"openai.types.{module}"), name)


@pytest.mark.parametrize("name", [n for n, schema in published().items() if "x-python" in schema])
def test_shapes_agree_with_the_types_of_the_openai_package(name: str) -> None:
    schema = published()[name]
    fields = {field.alias or key: field for key, field in python_class(schema).model_fields.items()}
    assert set(schema["properties"]) - set(fields) == set()
    required = {key for key, field in fields.items() if field.is_required()}
    assert required - set(schema.get("required", ())) == set()
    for key, value in schema["properties"].items():
        allowed = [value["const"]] if "const" in value else value.get("enum", [])
        known = literals(fields[key].annotation)
        assert set(allowed) - {None} - known == set() or not known, key


def test_every_required_field_is_described() -> None:
    for name, schema in published().items():
        assert set(schema.get("required", ())) - set(schema.get("properties", ())) == set(), name


def test_extras_are_no_published_fields() -> None:
    for name, fields in extras().items():
        assert fields.keys() & published()[name]["properties"].keys() == set(), name


def test_an_answer_of_the_published_shape_has_no_problem() -> None:
    assert problems("ChatCompletion", CHAT) == []


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("choices", 0, "message", "function_call"), None, "$.choices[0].message"),
        (("choices", 0, "message", "annotations"), None, "$.choices[0].message.annotations"),
        (("choices", 0, "message", "tool_calls"), None, "$.choices[0].message.tool_calls"),
        (("choices", 0, "message", "tool_calls"), [], "$.choices[0].message.tool_calls"),
        (("choices", 0, "stop_reason"), None, "$.choices[0].stop_reason"),
        (("choices", 0, "finish_reason"), "abort", "$.choices[0].finish_reason"),
        (("choices", 0, "finish_reson"), "stop", "$.choices[0]"),
        (("usage", "prompt_tokens_details"), None, "$.usage.prompt_tokens_details"),
        (("usage", "completion_tokens_details"), None, "$.usage.completion_tokens_details"),
        (("usage",), None, "$.usage"),
        (("system_fingerprint",), None, "$.system_fingerprint"),
        (("kv_transfer_params",), None, "$"),
        (("created",), 1.5, "$.created"),
        (("choices",), [], "$.choices"),
    ],
)
def test_what_servers_get_wrong_is_found(path: tuple[Any, ...], value: Any, place: str) -> None:
    answer = copy.deepcopy(CHAT)
    holder: Any = answer
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    [problem] = problems("ChatCompletion", answer)
    assert problem.startswith(f"{place}: ")


@pytest.mark.parametrize("field", ["message", "type", "param", "code"])
def test_an_error_has_all_four_keys(field: str) -> None:
    error = {"message": "no", "type": "invalid_request_error", "param": None, "code": None}
    assert problems("ErrorEnvelope", {"error": error}) == []
    del error[field]
    assert problems("ErrorEnvelope", {"error": error}) != []
    assert problems("ErrorEnvelope", {"error": {**error, field: 400}}) != []


def chunks(*choices: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**CHUNK, "choices": [{**CHOICE, **choice}]} for choice in choices]


ROLE = {"delta": {"role": "assistant", "content": ""}}
END = {"finish_reason": "stop"}
CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
MORE = {"index": 0, "function": {"arguments": "{}"}}


def test_a_stream_that_keeps_the_rules() -> None:
    calls = [{"delta": {"tool_calls": [call]}} for call in (CALL, MORE, {**CALL, "index": 1})]
    check_stream("ChatChunk", chunks(ROLE, {"delta": {"content": "a"}}, END), has_usage=False)
    check_stream("ChatChunk", chunks(ROLE, *calls, END), has_usage=False)
    told = [{**chunk, "usage": None} for chunk in chunks(ROLE, END)]
    check_stream("ChatChunk", [*told, {**CHUNK, "choices": [], "usage": USAGE}], has_usage=True)


@pytest.mark.parametrize(
    "values",
    [
        chunks(END),
        chunks({"delta": {"content": "a"}}, ROLE, END),
        chunks(ROLE, ROLE, END),
        chunks(ROLE, {"delta": {"content": "a"}}),
        chunks(ROLE, END, END),
        chunks(ROLE, END, {"delta": {"content": "a"}}),
        [*chunks(ROLE), {**chunks(END)[0], "id": "y"}],
        [*chunks(ROLE), {**chunks(END)[0], "created": 2}],
        [*chunks(ROLE), {**chunks(END)[0], "usage": None}],
        [*chunks(ROLE, END), {**CHUNK, "choices": [], "usage": USAGE}],
        chunks(ROLE, {"delta": {"tool_calls": [MORE]}}, END),
        chunks(ROLE, {"delta": {"tool_calls": [CALL]}}, {"delta": {"tool_calls": [CALL]}}, END),
        chunks(ROLE, {"delta": {"tool_calls": [{**CALL, "index": 1}]}}, END),
    ],
)
def test_a_stream_that_breaks_a_rule_is_found(values: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError):
        check_stream("ChatChunk", values, has_usage=False)


def test_framing() -> None:
    assert read_stream(': wait\n\ndata: {"a":1}\n\ndata: [DONE]\n\n') == [{"a": 1}]
    assert read_stream('data: {"error":{}}\n\n') == [{"error": {}}]


@pytest.mark.parametrize(
    "raw",
    [
        'data: {"a":1}\n\n',
        'data: {"a":1}\n\ndata: [DONE]\n',
        'data: [DONE]\n\ndata: {"a":1}\n\n',
        'data: {"error":{}}\n\ndata: [DONE]\n\n',
        'event: x\ndata: {"a":1}\n\ndata: [DONE]\n\n',
    ],
)
def test_wrong_framing_is_found(raw: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        read_stream(raw)


def test_events_are_known_by_their_type() -> None:
    event = {"type": "error", "sequence_number": 3, "code": None, "message": "no", "param": None}
    check_event(event)
    for wrong in ({**event, "type": "response.error"}, {**event, "response": {}}):
        with pytest.raises(AssertionError):
            check_event(wrong)
