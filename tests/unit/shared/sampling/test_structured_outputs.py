"""What structured_outputs accepts, and how it travels."""

import json
from typing import Any

import pytest

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.convert import outputs_from_message, outputs_to_message
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {}}}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth - 1):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "fields",
    [
        {"json": SCHEMA},
        {"json": json.dumps(SCHEMA)},
        {"json": True},
        {"json_object": True},
        {"regex": "a|b"},
        {"grammar": 'root ::= "a"'},
        {"choice": ["yes", "no"]},
        {"json": SCHEMA, "disable_any_whitespace": True, "disable_additional_properties": True},
        {"json_object": True, "disable_any_whitespace": True},
    ],
)
def test_each_kind_survives_the_wire(fields: dict[str, Any]) -> None:
    params = StructuredOutputsParams(**fields)
    assert outputs_from_message(outputs_to_message(params)) == params


def test_a_schema_is_kept_in_order() -> None:
    assert list(json.loads(StructuredOutputsParams(json=SCHEMA).text)["properties"]) == ["b", "a"]


def test_digests_are_equal_only_for_equal_constraints() -> None:
    ids = [
        StructuredOutputsParams(regex="a").digest,
        StructuredOutputsParams(regex="a").digest,
        StructuredOutputsParams(grammar="a").digest,
        StructuredOutputsParams(choice=("a",)).digest,
    ]
    assert [len(one) for one in ids] == [16] * 4
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "exactly one"),
        ({"regex": "a", "json_object": True}, "exactly one"),
        ({"json": "{"}, "no JSON"),
        ({"json": "[1]"}, "an object"),
        ({"json": "[" * 5000}, "no JSON"),
        ({"json": nested(33)}, "32 deep"),
        ({"json": {"enum": [[] for _ in range(1000)]}}, "objects and lists"),
        ({"json": {"description": "x" * 2**16}}, "characters"),
        ({"json": {"a": float}}, "no schema"),
        ({"regex": ""}, "not empty"),
        ({"regex": "x" * 1025}, "1024"),
        ({"regex": 5}, "text"),
        ({"grammar": "x" * (2**16 + 1)}, "65536"),
        ({"choice": []}, "not empty"),
        ({"choice": "ab"}, "list"),
        ({"choice": ["a", 5]}, "text"),
        ({"choice": ["a"] * 1025}, "1024"),
        ({"json_object": 1}, "true or false"),
        ({"json": True, "disable_any_whitespace": 1}, "true or false"),
        ({"regex": "a", "disable_any_whitespace": True}, "go with json"),
        ({"choice": ["a"], "disable_additional_properties": True}, "go with json"),
    ],
)
def test_values_out_of_bounds_are_refused_with_their_name(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRequestError, match=words) as caught:
        StructuredOutputsParams(**fields)
    assert caught.value.field == "structured_outputs"


def test_a_schema_with_options_is_held_to_the_bounds_of_its_receivers() -> None:
    """Options are written into it; characters beyond ASCII stay single ones."""
    empty = len(StructuredOutputsParams(json={"title": ""}, disable_any_whitespace=True).text)
    longest = {"title": "é" * (2**16 - empty)}
    params = StructuredOutputsParams(json=json.dumps(longest, ensure_ascii=False))
    full = StructuredOutputsParams(json=params.text, disable_any_whitespace=True)
    assert len(full.text) == 2**16
    assert outputs_from_message(outputs_to_message(full)) == full
    longer = json.dumps({"title": longest["title"] + "é"}, ensure_ascii=False)
    StructuredOutputsParams(json=longer)
    with pytest.raises(InvalidRequestError, match="65536 characters"):
        StructuredOutputsParams(json=longer, disable_any_whitespace=True)


def test_the_deepest_schema_allowed_is_taken() -> None:
    StructuredOutputsParams(json=nested(32))
