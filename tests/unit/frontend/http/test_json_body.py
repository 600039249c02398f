"""JSON of bodies: what is refused, and that refusing is cheap."""

import json

import orjson
import pytest
from pydantic import ValidationError

from pagewire_frontend.http.body.json_body import (
    MAX_COMMAS,
    MAX_CONTAINERS,
    MAX_NAMES,
    parse_object,
)
from pagewire_frontend.http.openai.schemas import ChatBody, CompletionBody, body_of
from pagewire_shared.errors import InvalidRequestError

DEEP = 20_000
REFUSED = {
    b"": "empty",
    b" \n": "empty",
    b"\xef\xbb\xbf{}": "byte order mark",
    '{"a": 1}'.encode("utf-16"): "byte order mark",
    b"{": "no JSON",
    b"{} {}": "no JSON",
    b"{'a': 1}": "no JSON",
    b'{"a": 1,}': "no JSON",
    b'{"a": 01}': "no JSON",
    b'{"a": NaN}': "no JSON",
    b'{"a": Infinity}': "no JSON",
    b'{"a": -Infinity}': "no JSON",
    b'{"a": 1e999}': "no JSON",
    b'{"a": ' + b"9" * 5000 + b"}": "no JSON",
    b'{"a": "\xff"}': "no JSON",
    b'{"a": "\xed\xa0\x80"}': "no JSON",
    b'{"a": "\\ud800"}': "no JSON",
    b'{"\\udc00": 1}': "no JSON",
    b'{"a": "\x01"}': "no JSON",
    b'{"a": ' + b"[" * DEEP + b"]" * DEEP + b"}": "recursion limit",
    b'{"a": ' + b"[" * DEEP: "recursion limit",
    b'{"x": ' * DEEP + b"1" + b"}" * DEEP: "recursion limit",
    b'{"abc": 1, "abc": 1}': '"abc"',
    b'{"a": {"b": [{"abc": 1, "d": 2, "abc": 3}]}}': '"abc"',
    b'{"a\\u0062c": 1, "abc": 1}': '"abc"',
}


@pytest.mark.parametrize("raw", REFUSED)
def test_refused(raw):
    with pytest.raises(InvalidRequestError, match=REFUSED[raw]) as caught:
        parse_object(raw)
    assert caught.value.code == "invalid_json"
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("raw", [b"[]", b"null", b"5", b'"x"', b"true"])
def test_only_an_object_is_a_body(raw):
    with pytest.raises(InvalidRequestError, match="object") as caught:
        parse_object(raw)
    assert caught.value.code == "invalid_type"


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": None, "b": [1, -2.5, 1e300], "ü": "\0😀\\", "big": 2**80},
        {"same": {"same": 1}, "other": {"same": 2}},
    ],
)
def test_taken_as_it_is(value):
    assert parse_object(json.dumps(value).encode()) == value
    assert parse_object(json.dumps(value, ensure_ascii=False).encode()) == value


def test_a_long_name_that_comes_twice_does_not_fill_the_answer():
    name = b'"' + b"x" * 100_000 + b'": 1'
    with pytest.raises(InvalidRequestError) as caught:
        parse_object(b"{" + name + b", " + name + b"}")
    assert len(caught.value.message) < 300


def test_the_number_of_values_is_bounded():
    ids = [1] * (MAX_COMMAS + 1)
    assert len(parse_object(json.dumps({"a": ids}).encode())["a"]) == len(ids)
    with pytest.raises(InvalidRequestError) as caught:
        parse_object(json.dumps({"a": [*ids, 1]}).encode())
    assert caught.value.code == "body_too_complex"


@pytest.mark.parametrize("before_colon", [b'"', b'" \n', b'\\\\\\\\"'])
def test_the_number_of_names_is_bounded(before_colon):
    names = [b'"%d%s: 1' % (number, before_colon) for number in range(MAX_NAMES + 1)]
    assert len(parse_object(b"{" + b", ".join(names[1:]) + b"}")) == MAX_NAMES
    with pytest.raises(InvalidRequestError) as caught:
        parse_object(b"{" + b", ".join(names) + b"}")
    assert caught.value.code == "body_too_complex"


def test_json_within_a_text_is_text():
    inner = json.dumps({str(number): 1 for number in range(MAX_NAMES + 1)})
    for text in (inner, json.dumps(inner), ": " * (MAX_NAMES + 1)):
        assert parse_object(json.dumps({"a": text}).encode()) == {"a": text}


def test_a_long_list_has_few_errors():
    """Half a million errors, one for each item and form, would take seconds."""
    ids = [1] * 1000
    assert body_of(CompletionBody, {"prompt": ids}).prompt == ids
    with pytest.raises(InvalidRequestError) as caught:
        body_of(CompletionBody, {"prompt": [*ids, None]})
    assert caught.value.field == "prompt"
    assert caught.value.__cause__.error_count() < 6


@pytest.mark.parametrize("values", [b"[],", b"{},"])
def test_many_lists_and_objects_are_refused(values):
    body = b'{"prompt": "x", "more": [' + values * (MAX_CONTAINERS + 1) + b"1]}"
    with pytest.raises(InvalidRequestError) as caught:
        parse_object(body)
    assert caught.value.code == "body_too_complex"


def test_brackets_in_texts_are_no_lists():
    text = '[{"\\' * (MAX_CONTAINERS + 1)
    assert parse_object(orjson.dumps({"prompt": text})) == {"prompt": text}


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": [' + b'"",' * 200_000 + b"1]}",
        b'{"messages": [{"role": "user", "content": [' + b'"",' * 200_000 + b"1]}]}",
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [' + b"1," * 200_000 + b"1]}",
        b'{"messages": [{"role": "user", "content": "x"}], "stop": [' + b"1," * 200_000 + b"1]}",
        b'{"messages": [{"role": "user", "content": "x"}], "bad_words": ['
        + b"1," * 200_000
        + b"1]}",
        b'{"messages": [{"role": "user", "content": "x"}], "stop_token_ids": ['
        + b'"",' * 200_000
        + b"1]}",
    ],
)
def test_a_list_is_checked_up_to_its_first_error(body):
    with pytest.raises(InvalidRequestError) as caught:
        body_of(ChatBody, parse_object(body))
    found = caught.value.__cause__
    assert isinstance(found, ValidationError)
    # One for each form that the field may have.
    assert found.error_count() < 10
