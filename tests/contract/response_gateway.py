"""What the tests of the Responses API share: typed streams, and a reader of a simple markup."""

import json
from typing import Any

import httpx
from contract.frontend_peers import Attach, ids_of

from pagewire_frontend.message.pieces import MessagePieces, ToolCallDelta
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_shared.kv.arrays import unpack_u32

URL = "/v1/responses"
STOPPED = sampling_pb2.FINISH_REASON_STOP
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def prompt_of(submit: Any) -> str:
    """Return the text of a prompt; special tokens are left out."""
    letters = {ids_of(chr(byte))[0]: chr(byte) for byte in range(128)}
    return "".join(letters.get(token, "") for token in unpack_u32(submit.prompt_token_ids))


def say(attach: Attach, submit: Any, text: str, *, reason: int = STOPPED, **tokens: Any) -> None:
    """Answer a request whole; it ends by itself unless told otherwise."""
    size = len(text.encode())
    attach.tokens(submit, 0, ids_of(text), **tokens)
    attach.finish(submit, size, reason=reason)


def events_of(text: str) -> list[dict[str, Any]]:
    """Return the events of a stream; each names its type twice, and there is nothing else."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        first, second = block.split("\n")
        event = json.loads(second.removeprefix("data: "))
        assert first == f"event: {event['type']}"
        found.append(event)
    return found


async def streamed(client: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a streamed response."""
    answer = await client.post(URL, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events_of(answer.text)


class MarkedReader:
    """Reads `<thoughts>`, plain content, and `[name{arguments}]` for calls, in any cut."""

    def __init__(self) -> None:
        self.num_calls = 0
        self._mode = "content"

    def push(self, text: str) -> MessagePieces:
        """Take the next text, character by character."""
        reasoning = content = ""
        calls: list[ToolCallDelta] = []
        for char in text:
            if self._mode == "content":
                if char in "<[":
                    self._mode, self._name = ("reasoning", "") if char == "<" else ("name", "")
                else:
                    content += char
            elif self._mode == "reasoning":
                if char == ">":
                    self._mode = "content"
                else:
                    reasoning += char
            elif self._mode == "name" and char != "{":
                self._name += char
            elif self._mode == "name":
                self._mode = "arguments"
                self.num_calls += 1
                call_id = f"call_{self.num_calls}"
                calls.append(ToolCallDelta(self.num_calls - 1, "{", call_id, self._name))
            elif char == "]":
                self._mode = "content"
            else:
                calls.append(ToolCallDelta(self.num_calls - 1, char))
        return MessagePieces(reasoning, content, tuple(calls))

    def finish(self) -> MessagePieces:
        """Return nothing: no text is held back."""
        return MessagePieces()
