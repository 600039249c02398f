"""A made-up way to mark reasoning and tool calls, and a reader for it: what a frontend shows of
messages, independent of how a model writes them.

`~thought~` is reasoning, `#name:arguments#` a call, anything else content. The reader holds back
the newest character of arguments, so that something is left for the end.
"""

from collections.abc import Sequence

from pagewire_frontend.chat.plan import MessagePlan
from pagewire_frontend.chat.tool_use import ToolUse
from pagewire_frontend.message.pieces import MessagePieces, ToolCallDelta
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams


class MarkedReader:
    """One character at a time."""

    def __init__(self) -> None:
        self.num_calls = 0
        self._place = "content"
        self._name = ""
        self._held = ""

    def push(self, text: str) -> MessagePieces:
        return joined([self._one(character) for character in text])

    def finish(self) -> MessagePieces:
        return self._arguments(self._held) if self._place == "arguments" else MessagePieces()

    def _one(self, character: str) -> MessagePieces:
        match self._place, character:
            case ("content", "~") | ("reasoning", "~"):
                self._place = "reasoning" if self._place == "content" else "content"
            case "content", "#":
                self._place, self._name = "name", ""
            case "name", ":":
                self._place, self._held = "arguments", ""
                self.num_calls += 1
                index = self.num_calls - 1
                return MessagePieces(
                    calls=(ToolCallDelta(index, call_id=f"call-{index}", name=self._name),)
                )
            case "name", _:
                self._name += character
            case "arguments", "#":
                self._place = "content"
                return self._arguments(self._held)
            case "arguments", _:
                held, self._held = self._held, character
                return self._arguments(held) if held else MessagePieces()
            case "reasoning", _:
                return MessagePieces(reasoning=character)
            case _:
                return MessagePieces(content=character)
        return MessagePieces()

    def _arguments(self, text: str) -> MessagePieces:
        return MessagePieces(calls=(ToolCallDelta(self.num_calls - 1, text),))


def joined(pieces: Sequence[MessagePieces]) -> MessagePieces:
    return MessagePieces(
        reasoning="".join(piece.reasoning for piece in pieces),
        content="".join(piece.content for piece in pieces),
        calls=tuple(call for piece in pieces for call in piece.calls),
    )


class MarkedPlans:
    """Stands in for plan_message and keeps what it was told; every model marks its messages.

    Attributes:
        uses: What was said of tools, per request.
        prompts: What was said of the prompt, per request.
        outputs: What calls are held to; None for nothing.
    """

    def __init__(self) -> None:
        self.uses: list[ToolUse] = []
        self.prompts: list[dict[str, object]] = []
        self.outputs: StructuredOutputsParams | None = None

    def __call__(
        self, model: LoadedModel, params: SamplingParams, tool_use: ToolUse, **prompt: object
    ) -> MessagePlan:
        self.uses.append(tool_use)
        self.prompts.append(prompt)
        shown = tuple({"name": tool.name} for tool in tool_use.tools)
        if self.outputs is not None:
            params = params.with_(structured_outputs=self.outputs)
        return MessagePlan(
            params=params,
            template_tools=shown or None,
            new_reader=MarkedReader,
            has_grammar=self.outputs is not None,
        )
