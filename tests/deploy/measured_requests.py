"""Requests to a gateway, measured by the client: what the server says of them must agree."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One streamed request; seconds from before it was sent.

    `usage` is what the answer says of its tokens.
    """

    first_seconds: float
    total_seconds: float
    usage: dict[str, Any]

    @property
    def num_cached(self) -> int:
        """Prompt tokens from a cache."""
        count: int = self.usage["prompt_tokens_details"]["cached_tokens"]
        return count


def ask(url: str, model: str, prompt: str, max_tokens: int) -> Measured:
    """Stream one completion to its end."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": max_tokens,
        "stream": True,
        "temperature": 0,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }
    began, first, usage = time.monotonic(), None, {}
    with (
        httpx.Client(timeout=PATIENCE_SECONDS) as client,
        client.stream("POST", f"{url}/v1/completions", json=body) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            first = first or time.monotonic()
            usage = json.loads(line.removeprefix("data: ")).get("usage") or usage
    assert first is not None
    return Measured(first - began, time.monotonic() - began, usage)


def ask_all(url: str, model: str, prompts: Sequence[str], max_tokens: int) -> list[Measured]:
    """Stream all at once, each over a connection of its own."""
    with ThreadPoolExecutor(len(prompts)) as threads:
        return list(threads.map(lambda prompt: ask(url, model, prompt, max_tokens), prompts))
