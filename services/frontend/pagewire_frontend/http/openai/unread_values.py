"""Names the values of a chat body that have no effect with its model or without its tools."""

from collections.abc import Iterator

from pagewire_frontend.chat.unread import unread_arguments, unread_effort, unread_name
from pagewire_frontend.http.openai.schemas import ChatBody
from pagewire_frontend.models.chat_template import ChatTemplate


def unread_values(body: ChatBody, template: ChatTemplate | None) -> Iterator[str]:
    """Yield the fields whose values change nothing, with dots for nesting."""
    if unread_effort(body.reasoning_effort, template):
        yield "reasoning_effort"
    for name in unread_arguments(body.chat_template_kwargs, template):
        yield f"chat_template_kwargs.{name}"
    if unread_name((message.name for message in body.messages), template):
        yield "messages.name"
    if body.parallel_tool_calls is not None and not body.tools:
        yield "parallel_tool_calls"
