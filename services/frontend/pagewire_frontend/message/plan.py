"""From what a client says of tools and reasoning to what the model is asked and how its text is
read. The one place that HTTP, gRPC and the Responses API go through."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pagewire_frontend.message.pieces import MessageReader, PlainReader
from pagewire_frontend.message.tool_use import NO_TOOLS, ToolUse
from pagewire_frontend.model_registry import LoadedModel
from pagewire_shared.sampling import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePlan:
    """How the messages of one request are made.

    Attributes:
        params: The sampling, with a grammar where calls are held to one.
        template_tools: What the chat template is given as `tools`; None for none.
        new_reader: Makes a reader for one choice.
        has_grammar: The grammar in `params` is that of tools: what is wrong with it is wrong with
            `tools`.
    """

    params: SamplingParams
    template_tools: tuple[Mapping[str, Any], ...] | None = None
    new_reader: Callable[[], MessageReader] = PlainReader
    has_grammar: bool = False


def plan_message(
    model: LoadedModel,
    params: SamplingParams,
    tool_use: ToolUse = NO_TOOLS,
    *,
    template_arguments: Mapping[str, Any] | None = None,
    opens_turn: bool = True,
) -> MessagePlan:
    """Return how messages of `model` are made.

    Args:
        model: Answers.
        params: As the client wants them.
        tool_use: What it says of tools.
        template_arguments: Of the chat template; they may switch thinking on or off.
        opens_turn: The prompt ends with the opening of the assistant's turn.

    Raises:
        InvalidRequestError: The tools and the other parameters exclude each other, or the model
            cannot call tools; names the field.
    """
    return MessagePlan(params=params)
