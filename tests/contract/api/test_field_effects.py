"""Each honoured field of OpenAI's changes the request to the scheduler, or the answer."""

import json
from typing import Any

import pytest
from contract.api.openai_probes import BODIES, Probe
from contract.automatic_scheduler import automatic_gateway

SAME = {
    "model": "the only model is served without its name, too",
    "store": "whether a response is kept shows when it is asked for",
}
CHANGING = {"id", "item_id", "created", "created_at", "completed_at", "timeline", "timings"}
"""Fields of answers that differ from one request to the next."""


def comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items() if name not in CHANGING}
    return [comparable(item) for item in value] if isinstance(value, list) else value


def comparable_text(text: str) -> Any:
    """An answer, whole or as events, without what always differs."""
    if not text.startswith(("data:", "event:")):
        return comparable(json.loads(text))
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data:")]
    return [comparable(json.loads(line)) for line in lines if line != "[DONE]"]


async def outcome(client: Any, submits: list[Any], path: str, body: dict[str, Any]) -> Any:
    """What the scheduler got and what the client got."""
    submits.clear()
    response = await client.post(path, json=body)
    for submit in submits:
        for name in ("request_id", "handle", "age_ms", "remaining_ms"):
            submit.ClearField(name)
        if "seed" not in body:
            submit.sampling.ClearField("seed")
    asked = [submit.SerializeToString(deterministic=True) for submit in submits]
    return response.status_code, asked, comparable_text(response.text)


def without(body: dict[str, Any], field: str) -> dict[str, Any]:
    """The body without a field."""
    return {name: value for name, value in body.items() if name != field.partition(".")[0]}


@pytest.mark.parametrize("body", BODIES)
async def test_an_honoured_field_changes_something(checkpoint: Any, body: str) -> None:
    path, needed, probes = BODIES[body]
    honoured = {
        field: probe
        for field, probe in probes.items()
        if probe.outcome == "honoured" and field not in SAME
    }
    submits: list[Any] = []
    same = []
    async with automatic_gateway(checkpoint, submits, tool_call_parser=("hermes",)) as client:

        async def change(probe: Probe, field: str) -> bool:
            with_it = {**needed, **probe.fields}
            plain = {**needed, **without(probe.fields, field)}
            if field.partition(".")[0] in needed:
                plain = needed
            first = await outcome(client, submits, path, plain)
            if first[0] != 200:
                # The other fields of the probe need this one.
                first = await outcome(client, submits, path, needed)
            assert first[0] == 200, (field, first)
            return bool(await outcome(client, submits, path, with_it) != first)

        needed_twice = [await outcome(client, submits, path, needed) for _ in range(2)]
        assert needed_twice[0] == needed_twice[1]
        for field, probe in honoured.items():
            if with_needed(probe, needed) != needed and not await change(probe, field):
                same.append(field)
    assert same == []


def with_needed(probe: Probe, needed: dict[str, Any]) -> dict[str, Any]:
    return {**needed, **probe.fields}
