"""Sends one streamed request to an OpenAI-compatible server and measures its times.

Calls block, so callers run them in threads.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pagewire_shared.errors import AuthenticationError, InvalidRequestError, UnavailableError


@dataclass(frozen=True, slots=True)
class Target:
    """A server.

    Attributes:
        base_url: Such as http://127.0.0.1:8000, with or without /v1.
        is_chat: /v1/chat/completions instead of /v1/completions.
        api_key: Bearer token; None to send no key.
        timeout_seconds: Timeout of connecting and of every read.
    """

    base_url: str
    model: str
    is_chat: bool
    api_key: str | None = None
    timeout_seconds: float = 600.0

    @property
    def _root(self) -> str:
        return self.base_url.rstrip("/").removesuffix("/v1")

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection that is not open yet. Raises InvalidRequestError for a bad URL."""
        parts = urlsplit(self._root)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequestError(
                f"--base-url: {self.base_url!r} is no http URL", field="--base-url"
            )
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        return kind(parts.hostname, parts.port, timeout=self.timeout_seconds)

    def path(self, name: str) -> str:
        """Return the path of an API call, such as "models"."""
        return f"{urlsplit(self._root).path}/v1/{name}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        headers = {"content-type": "application/json"}
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        return headers


@dataclass(slots=True)
class Timed:
    """Times of one request, in seconds of time.perf_counter.

    Attributes:
        sent: Time of sending.
        chunks: Time of arrival of each chunk with text.
        ended: Time of the end of the stream.
        num_prompt_tokens, num_output_tokens: Counts of the server; 0 when it reports none.
        error: Reason of a failure, or None.
    """

    sent: float
    chunks: list[float] = field(default_factory=list)
    ended: float = 0.0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    error: str | None = None


def first_model(target: Target) -> str:
    """Return the first model that the server lists. Raises UnavailableError without a model."""
    connection = target.connect()
    try:
        connection.request("GET", target.path("models"), headers=target.headers)
        response = connection.getresponse()
        body = response.read()
        if response.status == http.client.UNAUTHORIZED:
            raise AuthenticationError(f"{target.base_url} wants an API key: give it --api-key")
        if response.status != http.client.OK:
            raise UnavailableError(f"{target.base_url} answers {response.status} to /v1/models")
        return str(json.loads(body)["data"][0]["id"])
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"no server answers at {target.base_url}: {error}") from error
    except (ValueError, KeyError, IndexError) as error:
        raise UnavailableError(f"{target.base_url} lists no models") from error
    finally:
        connection.close()


def request_body(target: Target, prompt: str, max_tokens: int, ignore_eos: bool) -> bytes:
    """Return the JSON of a streamed request."""
    body: dict[str, Any] = {
        "model": target.model,
        "max_tokens": max_tokens,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ignore_eos:
        body["ignore_eos"] = True
    if target.is_chat:
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        body["prompt"] = prompt
    return json.dumps(body).encode()


def run_request(
    target: Target,
    body: bytes,
    connection: http.client.HTTPConnection | None = None,
    on_text: Callable[[], object] = lambda: None,
) -> Timed:
    """Send one request and read it to its end; a failure is in `error`, never raised.

    Args:
        target: The server.
        body: See `request_body`.
        connection: Of `target`, not open yet; None to make one. Closing its socket ends the
            request.
        on_text: Called after each chunk with text.
    """
    connection = connection or target.connect()
    timed = Timed(time.perf_counter())
    try:
        name = "chat/completions" if target.is_chat else "completions"
        connection.request("POST", target.path(name), body, target.headers)
        response = connection.getresponse()
        if response.status != http.client.OK:
            text = response.read().decode(errors="replace")[:200]
            timed.error = f"status {response.status}: {text}"
        else:
            for chunk in _chunks(response):
                if _take(timed, chunk):
                    on_text()
    except (OSError, http.client.HTTPException, ValueError) as error:
        timed.error = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    timed.ended = time.perf_counter()
    return timed


def _chunks(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data:"):
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            yield json.loads(data)
    raise ValueError("the stream ended without [DONE]")


def _take(timed: Timed, chunk: dict[str, Any]) -> bool:
    """Note a chunk; return whether it has text."""
    num_before = len(timed.chunks)
    if "error" in chunk:
        timed.error = str(chunk["error"])
    for choice in chunk.get("choices", ()):
        text = choice.get("text") or (choice.get("delta") or {}).get("content")
        if text:
            timed.chunks.append(time.perf_counter())
    usage = chunk.get("usage")
    if usage:
        timed.num_prompt_tokens = usage["prompt_tokens"]
        timed.num_output_tokens = usage["completion_tokens"]
    return len(timed.chunks) > num_before
