"""Builds the output of one response: takes pieces of a message, returns items and typed events.

Events are dicts as in OpenAI's published API description (`ResponseStreamEvent`), without their
sequence_number, which `ResponseRun` adds.
"""

from collections.abc import Callable, Sequence
from typing import Any

from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.responses.ids import (
    CALL_PREFIX,
    MESSAGE_PREFIX,
    REASONING_PREFIX,
    ItemIds,
)
from pagewire_frontend.http.responses.items import (
    Item,
    function_call,
    output_message,
    reasoning,
    text_part,
)
from pagewire_frontend.message.pieces import MessagePieces, ToolCallDelta

Event = dict[str, Any]


class Output:
    """Items in the order in which they begin; only the last of them may be open."""

    def __init__(
        self, pins: Pins, call_id: Callable[[int, str], str] = lambda _, drawn: drawn
    ) -> None:
        """Create an empty output.

        Args:
            pins: What ids of items are made of.
            call_id: Returns the id of a call, by its index and the id that was drawn for it.
        """
        self._ids = ItemIds(pins, "output")
        self._call_id = call_id
        self.items: list[Item] = []
        self._is_open = False
        self._call_index: int | None = None
        self._blank: tuple[str, list[Item]] = "", []

    @property
    def reasoning_text(self) -> str:
        """All reasoning so far."""
        thoughts = [item for item in self.items if item["type"] == "reasoning"]
        return "".join(part["text"] for item in thoughts for part in item["content"])

    def push(self, pieces: MessagePieces, logprobs: Sequence[Item] = ()) -> list[Event]:
        """Take the next pieces; `logprobs` are those of their content, ready to be shown."""
        events = self._close("completed") if pieces.begins else []
        if pieces.reasoning:
            events += self._think(pieces.reasoning)
        if pieces.content:
            events += self._say(pieces.content, logprobs)
        for delta in pieces.calls:
            events += self._call(delta)
        return events

    def finish(self, status: str) -> list[Event]:
        """End the open item with `status`, completed or incomplete. An output without any item
        becomes an empty message."""
        events: list[Event] = []
        if not self.items:
            blank = self._blank
            events += [*self._open_message(), *self._add_text(*blank)]
        return events + self._close(status)

    def _think(self, text: str) -> list[Event]:
        events = []
        if not self._continues("reasoning"):
            events = self._open(
                reasoning(None, self._ids.next(REASONING_PREFIX), status="in_progress")
            )
            events.append(self._add_part({"type": "reasoning_text", "text": ""}))
        self.items[-1]["content"][0]["text"] += text
        return [*events, self._event("response.reasoning_text.delta", content_index=0, delta=text)]

    def _say(self, text: str, logprobs: Sequence[Item]) -> list[Event]:
        if self._continues("message"):
            return self._add_text(text, logprobs)
        # Blank text alone is not a message: models put it between thoughts and calls.
        text, logprobs = self._blank[0] + text, [*self._blank[1], *logprobs]
        if not text.strip():
            self._blank = text, logprobs
            return []
        return [*self._open_message(), *self._add_text(text, logprobs)]

    def _open_message(self) -> list[Event]:
        item_id = self._ids.next(MESSAGE_PREFIX)
        events = self._open(output_message([], item_id, status="in_progress"))
        return [*events, self._add_part(text_part(""))]

    def _add_text(self, text: str, logprobs: Sequence[Item]) -> list[Event]:
        part = self.items[-1]["content"][0]
        part["text"] += text
        part["logprobs"] += logprobs
        if not text:
            return []
        return [
            self._event(
                "response.output_text.delta",
                content_index=0,
                delta=text,
                logprobs=list(logprobs),
            )
        ]

    def _call(self, delta: ToolCallDelta) -> list[Event]:
        events = []
        if not self._continues("function_call") or self._call_index != delta.index:
            assert delta.call_id is not None, "comes with the first piece"
            assert delta.name is not None, "comes with the first piece"
            self._call_index = delta.index
            call_id = self._call_id(delta.index, delta.call_id)
            item_id = self._ids.next(CALL_PREFIX)
            item = function_call(call_id, delta.name, "", item_id, status="in_progress")
            events = self._open(item)
        if not delta.arguments:
            return events
        self.items[-1]["arguments"] += delta.arguments
        kind = "response.function_call_arguments.delta"
        return [*events, self._event(kind, delta=delta.arguments)]

    def _continues(self, kind: str) -> bool:
        return self._is_open and self.items[-1]["type"] == kind

    def _open(self, item: Item) -> list[Event]:
        events = self._close("completed")
        self._blank = "", []
        self._is_open = True
        self.items.append(item)
        # Text that is added later must not show in this event.
        shown = {**item, "content": []} if "content" in item else dict(item)
        return [*events, self._event("response.output_item.added", item=shown)]

    def _add_part(self, part: Item) -> Event:
        self.items[-1]["content"].append(part)
        shown = {
            key: list(value) if isinstance(value, list) else value for key, value in part.items()
        }
        return self._event("response.content_part.added", content_index=0, part=shown)

    def _close(self, status: str) -> list[Event]:
        if not self._is_open:
            return []
        self._is_open = False
        item = self.items[-1]
        item["status"] = status
        return [*self._last_words(item), self._event("response.output_item.done", item=item)]

    def _last_words(self, item: Item) -> list[Event]:
        if item["type"] == "function_call":
            kind = "response.function_call_arguments.done"
            return [self._event(kind, name=item["name"], arguments=item["arguments"])]
        [part] = item["content"]
        reported: Item = {"content_index": 0, "text": part["text"]}
        if item["type"] == "message":
            reported["logprobs"] = part["logprobs"]
        kind = "output_text" if item["type"] == "message" else "reasoning_text"
        return [
            self._event(f"response.{kind}.done", **reported),
            self._event("response.content_part.done", content_index=0, part=part),
        ]

    def _event(self, kind: str, **rest: Any) -> Event:
        event: Event = {"type": kind, "output_index": len(self.items) - 1}
        if "item" not in rest:
            event["item_id"] = self.items[-1]["id"]
        return {**event, **rest}
