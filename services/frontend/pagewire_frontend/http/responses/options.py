"""From a checked body of POST /v1/responses to what the engine takes, and to what is shown of it
again. Owns the defaults of this endpoint and nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pagewire_frontend.chat.effort import effort_arguments
from pagewire_frontend.chat.tool_use import Tool, ToolUse
from pagewire_frontend.chat.unread import unread_arguments, unread_effort
from pagewire_frontend.http.body_fields import given_sampling
from pagewire_frontend.http.responses.schemas import (
    LOGPROBS,
    AllowedToolsBody,
    FunctionToolBody,
    NamedResponseToolBody,
    ResponsesBody,
    unsupported,
)
from pagewire_frontend.http.responses.shapes import Shapes
from pagewire_frontend.models.chat_template import ChatTemplate
from pagewire_frontend.models.template_arguments import checked_arguments
from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.sampling.fields import HttpBodies
from pagewire_shared.sampling.params import MAX_LOGPROBS, SamplingParams
from pagewire_shared.sampling.structured_outputs import FIELD, StructuredOutputsParams

# Left out of the response where the client did not name them.
_SHOWN_IF_GIVEN = (
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "user",
)
# Names of the engine that are others here.
_FIELDS = {"messages": "input", "max_tokens": "max_output_tokens"}


def sampling(body: ResponsesBody, defaults: SamplingParams) -> SamplingParams:
    """Return how to sample. Raises InvalidRequestError naming the field."""
    changes = given_sampling(body, HttpBodies.RESPONSES)
    outputs = _structured(body)
    if outputs is not None:
        changes["structured_outputs"] = outputs
    top = body.top_logprobs
    if top is not None and not 0 <= top <= MAX_LOGPROBS:
        raise InvalidRequestError(
            f"top_logprobs must be between 0 and {MAX_LOGPROBS}", field="top_logprobs"
        )
    return defaults.with_(
        max_tokens=body.max_output_tokens,
        logprobs=(top or 0) if has_logprobs(body) else None,
        **changes,
    )


def has_logprobs(body: ResponsesBody) -> bool:
    """Return whether log-probabilities are shown."""
    return LOGPROBS in (body.include or ()) or bool(body.top_logprobs)


def tool_use(body: ResponsesBody, shapes: Shapes) -> ToolUse:
    """Return the tools and how they may be used.

    Args:
        body: The body.
        shapes: Notes the fields without effect.

    Raises:
        InvalidRequestError: Names the field.
    """
    tools = [_tool(shapes, f"tools.{index}", one) for index, one in enumerate(body.tools or ())]
    is_parallel = body.parallel_tool_calls is not False
    choice = body.tool_choice
    if not isinstance(choice, dict):
        mode = choice or ("auto" if tools else "none")
        return ToolUse(tools=tools, mode=mode, is_parallel=is_parallel)
    kind = choice.get("type")
    if kind == "function":
        name = shapes.read(NamedResponseToolBody, "tool_choice", choice).name
        return ToolUse(tools=tools, mode="required", name=name, is_parallel=is_parallel)
    if kind == "allowed_tools":
        allowed = shapes.read(AllowedToolsBody, "tool_choice", choice)
        kept = _allowed(tools, [tool.name for tool in allowed.tools])
        return ToolUse(tools=kept, mode=allowed.mode, is_parallel=is_parallel)
    raise unsupported(f"tool_choice: type {str(kind)[:64]!r}", "tool_choice")


def template_arguments(body: ResponsesBody) -> Mapping[str, Any]:
    """Return values for the chat template; what the client names wins over the effort."""
    given = checked_arguments("chat_template_kwargs", body.chat_template_kwargs)
    return {**effort_arguments(effort(body)), **(given or {})}


def unread_values(body: ResponsesBody, template: ChatTemplate | None) -> Iterator[str]:
    """Yield the fields whose values change nothing, with dots for nesting."""
    if unread_effort(effort(body), template):
        yield "reasoning.effort"
    for name in unread_arguments(body.chat_template_kwargs, template):
        yield f"chat_template_kwargs.{name}"
    if body.parallel_tool_calls is not None and not body.tools:
        yield "parallel_tool_calls"


def effort(body: ResponsesBody) -> str | None:
    """Return the effort of reasoning, or None."""
    return body.reasoning.effort if body.reasoning is not None else None


def echo(body: ResponsesBody, params: SamplingParams) -> dict[str, Any]:
    """Return the parameters as every response object shows them."""
    shown: dict[str, Any] = {
        "instructions": body.instructions,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "temperature": params.temperature,
        "text": {"format": _shown_format(body)},
        "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
        "tools": [_shown_tool(tool) for tool in body.tools or ()],
        "top_p": params.top_p,
        "truncation": "disabled",
        "top_logprobs": body.top_logprobs or 0,
    }
    given = {name: getattr(body, name) for name in _SHOWN_IF_GIVEN}
    shown.update({name: value for name, value in given.items() if value is not None})
    if body.service_tier is not None:
        shown["service_tier"] = "default"
    if body.reasoning is not None:
        shown["reasoning"] = body.reasoning.model_dump(exclude_none=True, include={"effort"})
    return shown


def as_given(error: PagewireError, body: ResponsesBody) -> PagewireError:
    """Return `error` with its field, also in the message, as the body of a response calls it."""
    given = _FIELDS.get(error.field or "")
    if error.field == FIELD:
        # Calls are held to their schemas by a grammar, too.
        form = body.text.format if body.text is not None else None
        given = "tools" if form is None or form.type == "text" else "text.format"
    if given is not None:
        error.message = error.message.replace(str(error.field), given)
        error.field = given
    return error


def _structured(body: ResponsesBody) -> StructuredOutputsParams | None:
    form = body.text.format if body.text is not None else None
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return StructuredOutputsParams(json_object=True)
    if form.name is None or form.schema_ is None:
        missing = "name" if form.name is None else "schema"
        raise InvalidRequestError(
            f"text.format.{missing} is required with type json_schema",
            field=f"text.format.{missing}",
        )
    return StructuredOutputsParams(json=form.schema_)


def _tool(shapes: Shapes, place: str, given: dict[str, Any]) -> Tool:
    kind = given.get("type")
    if kind != "function":
        raise unsupported(f"{place}: a tool of type {str(kind)[:64]!r}", "tools")
    body = shapes.read(FunctionToolBody, place, given)
    return Tool(
        name=body.name,
        description=body.description,
        parameters=body.parameters,
        strict=bool(body.strict),
    )


def _allowed(tools: Sequence[Tool], names: Sequence[str]) -> list[Tool]:
    known = {tool.name for tool in tools}
    for name in names:
        if name not in known:
            raise InvalidRequestError(
                f"tool_choice: {name[:64]!r} is none of the tools", field="tool_choice"
            )
    return [tool for tool in tools if tool.name in names]


def _shown_format(body: ResponsesBody) -> dict[str, Any]:
    form = body.text.format if body.text is not None else None
    if form is None or form.type != "json_schema":
        return {"type": "text" if form is None else form.type}
    return form.model_dump(
        by_alias=True,
        exclude_none=True,
        include={"type", "name", "description", "schema_", "strict"},
    )


def _shown_tool(given: dict[str, Any]) -> dict[str, Any]:
    names = ("type", "name", "description")
    shown: dict[str, Any] = {name: given[name] for name in names if name in given}
    return {**shown, "parameters": given.get("parameters"), "strict": bool(given.get("strict"))}
