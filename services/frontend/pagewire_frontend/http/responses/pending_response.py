"""A response before its first token: its request to the engine, and the shape of its body."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagewire_frontend.http.kept_streams.making import NOTHING_PINNED, Making, PinnedUsage
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.message.pieces import MessageReader
from pagewire_frontend.metrics.timeline import tier_details, timeline_details
from pagewire_frontend.prompts.generation_request import GenerationRequest
from pagewire_frontend.session.events import Usage
from pagewire_shared.errors import (
    InvalidRequestError,
    OverloadedError,
    PagewireError,
)

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingResponse:
    """The data that one response is made from.

    Attributes:
        pins: What is drawn for it.
        new_reader: Makes a reader of the model's text.
        echo: The parameters as every body shows them.
        input_items: The whole conversation before the answer, oldest first.
        is_background: It goes on without its client.
        is_stored: It can be retrieved by its id.
        has_replay: Its events are kept, for readers that come later.
        making: How it is made; None where no other frontend could make it again.
    """

    response_id: str
    pins: Pins
    request: GenerationRequest
    new_reader: Callable[[], MessageReader]
    echo: Mapping[str, Any]
    input_items: Sequence[Item]
    has_logprobs: bool = False
    is_background: bool = False
    is_stored: bool = True
    has_replay: bool = False
    making: Making | None = None

    @property
    def tenant(self) -> str | None:
        """The tenant that may retrieve it."""
        return self.request.tenant

    @property
    def pinned_usage(self) -> PinnedUsage:
        """What is known already of its end."""
        return NOTHING_PINNED if self.making is None else self.making.pinned_usage

    def call_id(self, index: int, drawn: str) -> str:
        """Return the id of a tool call, by its index and the id that was drawn for it."""
        return drawn if self.making is None else self.pins.call_id(0, index, drawn)

    def body(self, status: str, output: Sequence[Item], **rest: Any) -> Body:
        """Return the response object; `rest` replaces fields that are null in most of them."""
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.pins.created,
            "status": status,
            "background": self.is_background,
            "error": None,
            "incomplete_details": None,
            "model": self.request.model.shown_name,
            "output": list(output),
            **self.echo,
            **rest,
        }


def usage_body(usage: Usage, num_reasoning_tokens: int) -> Body:
    """Return token counts in OpenAI's names."""
    return {
        "input_tokens": usage.prompt_tokens,
        # The schema requires this number; writes to the cache cost nothing here.
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": 0,
            **tier_details(usage.cached_tokens_by_tier),
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": num_reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        **timeline_details(usage.timelines),
        **usage.version_fields,
    }


def error_body(error: PagewireError) -> Body:
    """Return the error of a failed response; its codes are a closed set."""
    code = "server_error"
    if isinstance(error, OverloadedError):
        code = "rate_limit_exceeded"
    elif isinstance(error, InvalidRequestError):
        code = "invalid_prompt"
    return {"code": code, "message": error.message}
