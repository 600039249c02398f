"""Bodies and events of the Responses API against the types of the `openai` package, which are
generated from the published description: every field strictly, each item by its own type."""

import copy
from typing import Any, get_args

from openai.types import responses as published
from openai.types.responses.response_output_item import ResponseOutputItem
from openai.types.responses.response_stream_event import ResponseStreamEvent
from pydantic import BaseModel

# Null is for fields that a body must have and may have no value for; all others are left out.
NULLABLE = {
    "error",
    "incomplete_details",
    "instructions",
    "metadata",
    "temperature",
    "top_p",
    "code",
    "param",
    # Of a tool.
    "parameters",
    "strict",
}
REQUIRED = {
    "id",
    "object",
    "created_at",
    "error",
    "incomplete_details",
    "instructions",
    "metadata",
    "model",
    "output",
    "parallel_tool_calls",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
}


def by_type(union: Any) -> dict[str, type[BaseModel]]:
    """Return the members of a union by their `type`."""
    members = get_args(get_args(union)[0])
    return {get_args(member.model_fields["type"].annotation)[0]: member for member in members}


EVENTS = by_type(ResponseStreamEvent)
ITEMS = by_type(ResponseOutputItem)


def check_response(body: dict[str, Any]) -> None:
    """Hold a response object to the published shape."""
    assert set(body) >= REQUIRED
    assert_no_stray_null(body)
    published.Response.model_validate(body, strict=True)
    for item in body["output"]:
        check_item(item)
    if body["status"] in ("completed", "incomplete"):
        assert body["usage"]["total_tokens"] == (
            body["usage"]["input_tokens"] + body["usage"]["output_tokens"]
        )
    assert ("completed_at" in body) == (body["status"] == "completed")


def check_item(item: dict[str, Any]) -> None:
    """Hold an output item to the published shape of its type."""
    ITEMS[item["type"]].model_validate(item, strict=True)


def check_event(event: dict[str, Any]) -> None:
    """Hold an event to the published shape of its type."""
    assert_no_stray_null(event)
    EVENTS[event["type"]].model_validate(event, strict=True)
    if "response" in event:
        check_response(event["response"])
    if "item" in event:
        check_item(event["item"])


def check_stream(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Hold a whole stream to its shape and order; return the items that its deltas add up to, by
    their place."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    items: dict[int, dict[str, Any]] = {}
    for event in copy.deepcopy(events):
        check_event(event)
        if "output_index" in event:
            _apply(items, event)
    last = events[-1]
    if "response" in last:
        assert last["type"] == f"response.{last['response']['status']}"
        assert last["response"]["output"] == [items[index] for index in sorted(items)]
    return items


def _apply(items: dict[int, dict[str, Any]], event: dict[str, Any]) -> None:
    kind, index = event["type"].removeprefix("response."), event["output_index"]
    if kind == "output_item.added":
        assert index == len(items)
        assert all(item["status"] != "in_progress" for item in items.values())
        assert event["item"]["status"] == "in_progress"
        items[index] = event["item"]
        return
    item = items[index]
    if kind == "output_item.done":
        assert {**event["item"], "status": "in_progress"} == item
        items[index] = event["item"]
        return
    assert event["item_id"] == item["id"]
    if kind == "content_part.added":
        assert event["content_index"] == len(item["content"])
        item["content"].append(event["part"])
    elif kind == "function_call_arguments.delta":
        item["arguments"] += event["delta"]
    elif kind == "function_call_arguments.done":
        assert (event["arguments"], event["name"]) == (item["arguments"], item["name"])
    else:
        _apply_to_part(item["content"][event["content_index"]], kind, event)


def _apply_to_part(part: dict[str, Any], kind: str, event: dict[str, Any]) -> None:
    if kind == "content_part.done":
        assert event["part"] == part
    elif kind.endswith("_text.delta"):
        part["text"] += event["delta"]
        if "logprobs" in event:
            part["logprobs"] = part["logprobs"] + event["logprobs"]
    else:
        assert kind in ("output_text.done", "reasoning_text.done")
        assert event["text"] == part["text"]
        if kind == "output_text.done":
            assert event["logprobs"] == part["logprobs"]


def assert_no_stray_null(value: Any, name: str = "") -> None:
    """Raise where a field is null that should be absent."""
    if isinstance(value, dict):
        for key, item in value.items():
            assert_no_stray_null(item, key)
    elif isinstance(value, list):
        for item in value:
            assert_no_stray_null(item, name)
    else:
        assert value is not None or name in NULLABLE, f"{name} is null"


def check_kept_item(item: dict[str, Any]) -> None:
    """Hold an item of a list to the published shape of its type."""
    assert_no_stray_null(item)
    by_role = published.ResponseInputMessageItem, published.ResponseOutputMessage
    shapes = {
        "message": by_role[item.get("role") == "assistant"],
        "reasoning": published.ResponseReasoningItem,
        "function_call": published.ResponseFunctionToolCallItem,
        "function_call_output": published.ResponseFunctionToolCallOutputItem,
    }
    shapes[item["type"]].model_validate(item, strict=True)
