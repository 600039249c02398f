"""The walk over the objects inside the body of Responses: items, parts, tools and choices."""

from typing import Any

import pytest
from contract.api.response_probes import KINDS, REFUSED, Kind, filled
from contract.api.test_openai_fields import PARSER, ignored_in
from contract.automatic_scheduler import automatic_gateway

from support.oracles.openai_fields import read_kinds

READ = [(place, type_, kind) for place, kinds in KINDS.items() for type_, kind in kinds.items()]


def shown_place(place: str) -> str:
    """The place as a header names it: without the type of the item."""
    parts = place.split(".")
    return ".".join(parts[::2]) if len(parts) == 3 else place


@pytest.mark.parametrize(("place", "type_", "kind"), READ)
def test_every_field_of_what_is_read_has_an_outcome(place: str, type_: str, kind: Kind) -> None:
    fields = set(read_kinds()[place][type_])
    assert fields == {"type", *kind.needed, *kind.read, *kind.ignored}
    assert not kind.read.keys() & kind.ignored.keys()


async def test_what_is_read_has_the_outcome_of_the_table(checkpoint: Any) -> None:
    wrong = []
    async with automatic_gateway(checkpoint, tool_call_parser=PARSER) as client:
        for place, type_, kind in READ:
            whole = {**kind.needed, **kind.read, **kind.ignored}
            response = await client.post("/v1/responses", json=kind.around(whole))
            prefix = shown_place(place)
            wanted = {f"{prefix}.{name}" for name in kind.ignored}
            if response.status_code != 200 or set(ignored_in(response)) != wanted:
                wrong.append((place, type_, response.text[:300], ignored_in(response)))
    assert wrong == []


def refused_types(place: str) -> list[str]:
    return sorted(type_ for type_ in read_kinds()[place] if type_ not in KINDS[place])


@pytest.mark.parametrize("place", REFUSED)
async def test_objects_of_other_types_are_refused_by_name(checkpoint: Any, place: str) -> None:
    wrong = []
    async with automatic_gateway(checkpoint, tool_call_parser=PARSER) as client:
        for type_ in refused_types(place):
            given = {"type": type_, "name": "look"}
            asked = {name: filled(value, given) for name, value in REFUSED[place].items()}
            response = await client.post("/v1/responses", json=asked)
            error = response.json().get("error") or {}
            is_named = type_ in error.get("message", "") or "only text parts" in error["message"]
            field = place.partition(".")[0]
            if response.status_code != 400 or not is_named or error["param"] != field:
                wrong.append((type_, response.text[:300]))
    assert wrong == []


async def test_what_is_wrong_inside_is_said_in_plain_words(checkpoint: Any) -> None:
    asked = [
        ({"input": [{"role": "user", "content": 5}]}, "input.0.content must be a string or a list"),
        ({"input": [{"content": "x"}]}, "input.0.role is required"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": 1}]}]},
            "input.0.content.0.text must be a string",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input.0.content.0: images are not supported; only text parts",
        ),
        ({"input": "x", "tools": [{"type": "function"}]}, "tools.0.name is required"),
        (
            {"input": "x", "tool_choice": {"type": "allowed_tools", "mode": "auto"}},
            "tool_choice.tools is required",
        ),
    ]
    async with automatic_gateway(checkpoint, tool_call_parser=PARSER) as client:
        for body, text in asked:
            response = await client.post("/v1/responses", json=body)
            assert response.status_code == 400
            error = response.json()["error"]
            assert error["message"] == text
            assert error["param"] == text.partition(".")[0]
