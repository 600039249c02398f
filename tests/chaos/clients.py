"""Clients that read on by themselves, and the streams that they read."""

import asyncio
import json
import time
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import httpx

from pagewire import AsyncClient, SamplingParams
from pagewire.client.events import Closed, Opened
from pagewire_shared.errors import PagewireError

PATIENCE_SECONDS: Final = 60.0
"""After which a stream without a new event is lost."""
SILENCE_SECONDS: Final = 3.0
"""After which a connection without a new event is given up for another."""
WAIT_SECONDS: Final = 0.05
NUM_TOKENS: Final = 96

STORY: Final = "A fox and a crow lived near a village by the river. " * 6
TURNS: Final = [{"role": "user", "content": STORY + "Tell me a story about them."}]
TOOL: Final = {
    "name": "look",
    "parameters": {
        "type": "object",
        "properties": {"at": {"type": "string", "maxLength": 40}, "far": {"type": "boolean"}},
        "required": ["at", "far"],
    },
}
SCHEMA: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "ages": {"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 6},
    },
    "required": ["name", "ages"],
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: a path and a body, or for gRPC a prompt and its parameters."""

    name: str
    path: str = ""
    body: dict[str, Any] = field(default_factory=dict)
    prompt: tuple[int, ...] = ()
    params: SamplingParams | None = None


@dataclass(slots=True)
class Reading:
    """One stream as its client read it.

    Attributes:
        events: Without ids and times.
        times: When each came; by time.monotonic().
        last: Id of the last event that has one.
        error: What ended it early.
    """

    asked: Asked
    events: list[Any] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    last: str = ""
    error: str = ""
    is_whole: bool = False

    def add(self, event: Any) -> None:
        """Note an event that came now."""
        self.events.append(event)
        self.times.append(time.monotonic())


def requests_of(model: str, adapter: str, num_seeds: int) -> list[Asked]:
    """Return requests of every kind, each with a few seeds."""
    chat, completions = "/v1/chat/completions", "/v1/completions"
    turns = {"messages": TURNS}
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    tools = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required"}
    prompts = [STORY + "One fox", STORY + "Two foxes"]
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "text": (chat, turns),
        "choices": (chat, {**turns, "n": 4, "stop": ["the end"]}),
        "logprobs": (chat, {**turns, "logprobs": True, "top_logprobs": 2}),
        "tools": (chat, {**turns, **tools, "ignore_eos": False}),
        "schema": (chat, {**turns, "response_format": schema, "ignore_eos": False}),
        "adapter": (chat, {**turns, "model": adapter}),
        "prompts": (completions, {"prompt": prompts, "n": 2, "logprobs": 1}),
        "greedy": (completions, {"prompt": STORY * 2, "temperature": 0.0}),
    }
    common = {"model": model, "stream": True, "max_tokens": NUM_TOKENS, "temperature": 1.0}
    common |= {"stream_options": {"include_usage": True}, "ignore_eos": True}
    found = [
        Asked(f"{name}-{seed}", path, {**common, "seed": seed, **body})
        for name, (path, body) in kinds.items()
        for seed in range(num_seeds)
    ]
    for seed in range(2 * num_seeds):
        params = SamplingParams(
            n=1 + seed % 2, temperature=1.0, seed=seed, max_tokens=NUM_TOKENS, ignore_eos=True
        )
        prompt = tuple(5 + (7 * i + seed % 3) % 300 for i in range(120))
        found.append(Asked(f"grpc-{seed}", prompt=prompt, params=params))
    return found


class Clients:
    """Reads streams of one deployment; use it as an async context manager."""

    def __init__(self, url: str, grpc_address: str, model: str) -> None:
        self._url = url
        self._model = model
        self._address = grpc_address
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        timeout = httpx.Timeout(SILENCE_SECONDS, connect=1.0)
        self._http = httpx.AsyncClient(timeout=timeout, limits=limits)

    async def __aenter__(self) -> "Clients":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._http.aclose()

    async def read(self, asked: Asked, reading: Reading | None = None) -> Reading:
        """Read a stream to its end, over whatever breaks in between."""
        reading = reading or Reading(asked)
        follow = self._follow_grpc if asked.params is not None else self._follow_http
        try:
            await follow(reading)
        except PagewireError as error:
            reading.error = f"{type(error).__name__}: {error}"
        return reading

    async def _follow_http(self, reading: Reading) -> None:
        asked, stream_id = reading.asked, ""
        headers = {"idempotency-key": str(uuid.uuid4())}
        began = time.monotonic()
        while not reading.is_whole and not reading.error:
            url, method, sent = self._url + asked.path, "POST", headers
            if reading.last:
                url, method = f"{self._url}/v1/streams/{stream_id}", "GET"
                sent = {"last-event-id": reading.last}
            body = None if reading.last else asked.body
            try:
                async with self._http.stream(method, url, json=body, headers=sent) as response:
                    if response.status_code == 200:
                        stream_id = response.headers["x-pagewire-stream"]
                        await self._take(reading, response)
                        continue
                    text = (await response.aread()).decode()
                    if response.status_code != 503:
                        reading.error = f"{response.status_code}: {text}"
            except httpx.TransportError:
                pass
            seen = reading.times[-1] if reading.times else began
            if time.monotonic() - max(seen, began) > PATIENCE_SECONDS:
                reading.error = reading.error or "lost: nothing comes any more"
            await asyncio.sleep(WAIT_SECONDS)

    async def _take(self, reading: Reading, response: httpx.Response) -> None:
        """Note the events of a response."""
        event_id = ""
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                event_id = value
            elif name == "data" and value == "[DONE]":
                reading.is_whole = True
            elif name == "data":
                chunk = json.loads(value)
                if "error" in chunk and not event_id:
                    return  # its frontend ends: others go on
                if "error" in chunk:
                    reading.error = value
                    return
                reading.add(_plain(chunk))
                reading.last, event_id = event_id, ""

    async def _follow_grpc(self, reading: Reading) -> None:
        asked = reading.asked
        async with AsyncClient(self._address, resume_seconds=PATIENCE_SECONDS) as client:
            async for event in client.complete(asked.prompt, asked.params, model=self._model):
                match event:
                    case Opened():
                        reading.add(["opened", event.prompt_token_ids, event.seed])
                    case Closed():
                        reading.add(["closed", event.usage.completion_tokens])
                        reading.is_whole = True
                    case _:
                        reading.add([type(event).__name__, asdict(event)])


def _plain(chunk: dict[str, Any]) -> dict[str, Any]:
    """Return a chunk without what differs between two answers: ids, times, cached tokens."""
    chunk.update(id="", created=0)
    if chunk.get("usage"):
        names = ("completion_tokens", "total_tokens")
        chunk["usage"] = {name: chunk["usage"][name] for name in names}
    for choice in chunk.get("choices", ()):
        for call in choice.get("delta", {}).get("tool_calls", ()):
            if "id" in call:
                call["id"] = "call"
    return chunk
