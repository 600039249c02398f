"""Reads bodies of POST /v1/responses, also those of responses whose frontend is gone, and builds
the responses that they ask for."""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.chat.effort import check_effort
from pagewire_frontend.chat.plan import MessagePlan, plan_message
from pagewire_frontend.chat.tool_use import ToolUse
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.field_outcomes import unread_fields
from pagewire_frontend.http.kept_streams.keys import digest_of
from pagewire_frontend.http.kept_streams.making import Making
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.openai.schemas import body_of
from pagewire_frontend.http.responses import options
from pagewire_frontend.http.responses.input import input_items
from pagewire_frontend.http.responses.items import Item, turns
from pagewire_frontend.http.responses.pending_response import PendingResponse
from pagewire_frontend.http.responses.schemas import ResponsesBody, check_body
from pagewire_frontend.http.responses.shapes import Shapes
from pagewire_frontend.http.server.ignored_fields import first_names
from pagewire_frontend.prompts.generation_request import ChatPrompt, GenerationRequest

RESPONSES_PATH: Final = "/v1/responses"
_ITEMS_END: Final = b"\n"


@dataclass(frozen=True, slots=True)
class AskedResponse:
    """A checked body.

    Attributes:
        said: Its input.
        ignored: Its fields without effect.
        digest: Of path and body, where that is wanted.
    """

    body: ResponsesBody
    said: list[Item]
    tools: ToolUse
    ignored: list[str]
    digest: bytes = b""


def checked(pins: Pins, has_digest: bool, data: dict[str, Any]) -> AskedResponse:
    """Return the checked body of a request. Checking tens of thousands of parts may take a tenth of
    a second.

    Args:
        pins: What is drawn for the response.
        has_digest: Whether its digest is wanted.
    """
    digest = digest_of(RESPONSES_PATH, data) if has_digest else b""
    body, shapes = body_of(ResponsesBody, data), Shapes(pins)
    check_body(body)
    said, tools = input_items(body.input, shapes), options.tool_use(body, shapes)
    ignored = first_names(shapes.ignored | set(unread_fields(body)))
    return AskedResponse(body, said, tools, ignored, digest)


async def pending_response(
    engine: Engine,
    asked: AskedResponse,
    earlier: list[Item],
    *,
    response_id: str,
    pins: Pins,
    making: Making | None = None,
    is_kept: bool = False,
) -> tuple[PendingResponse, MessagePlan]:
    """Return a response before its first token, and what names the fields of its errors.

    Args:
        earlier: The conversation before the input.
        making: How it is made; None where no other frontend could make it again.
        is_kept: It goes on without its client.
    """
    body, said = asked.body, [*earlier, *asked.said]
    model = engine.models.find(body.model)
    params = options.sampling(body, model.defaults)
    check_effort(options.effort(body), model.formats, "reasoning.effort")
    arguments = options.template_arguments(body)
    prompt_end = await engine.prompt_end(model, arguments)
    plan = plan_message(model, params, asked.tools, prompt_end=prompt_end)
    request = GenerationRequest(
        model=model,
        prompt=ChatPrompt(
            turns(said, body.instructions),
            template_arguments=arguments,
            tools=plan.template_tools,
        ),
        params=plan.params,
        tenant=current_tenant(),
        cache_salt=body.cache_salt,
        priority=body.priority or 0,
        marks=plan.marks,
    )
    pending = PendingResponse(
        response_id=response_id,
        pins=pins,
        request=request if making is None else making.applied(request, 0),
        new_reader=plan.new_reader,
        echo=options.echo(body, params),
        input_items=said,
        has_logprobs=options.has_logprobs(body),
        is_background=bool(body.background),
        is_stored=body.store is not False,
        has_replay=is_kept and bool(body.stream),
        making=making,
    )
    return pending, plan


def recipe_body(earlier: list[Item], text: bytes) -> bytes:
    """Return what another frontend reads a response again from: the conversation before its input,
    which may be gone with this frontend, and the body as it came."""
    return orjson.dumps(earlier) + _ITEMS_END + text


def parts_of_recipe(body: bytes) -> tuple[list[Item], bytes]:
    """Return the conversation and the body of `recipe_body`."""
    earlier, _, text = body.partition(_ITEMS_END)
    return list(orjson.loads(earlier)), text
