"""One streamed completion of token ids over HTTP, with the time at which each token came."""

import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pagewire.bench.openai_stream import Target


@dataclass(slots=True)
class TimedStream:
    """A request and, from `run` on, what came of it, in seconds of time.perf_counter.

    Attributes:
        prompt: Token ids.
        max_tokens: Tokens that are generated.
        sent: When it was sent.
        arrivals: When each chunk with tokens came.
        num_tokens: Tokens that came.
        timeline: Entries of `usage.timeline`, one per choice or None; empty where the server tells
            none.
    """

    prompt: Sequence[int]
    max_tokens: int
    sent: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    num_tokens: int = 0
    timeline: list[dict[str, Any] | None] = field(default_factory=list)

    @property
    def ttft(self) -> float:
        """From sending to the first token."""
        return self.arrivals[0] - self.sent

    def gaps(self, begin: float, end: float) -> list[float]:
        """Return the times between arrivals that lie, at least in part, from `begin` to `end`."""
        pairs = itertools.pairwise(self.arrivals)
        return [after - before for before, after in pairs if after > begin and before < end]

    def run(self, target: Target) -> None:
        """Send it and read it to its end. Raises SystemExit when it was refused or has failed."""
        body = {
            "model": target.model,
            "prompt": list(self.prompt),
            "max_tokens": self.max_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        connection = target.connect()
        self.sent = time.perf_counter()
        try:
            path = target.path("completions")
            connection.request("POST", path, json.dumps(body), target.headers)
            response = connection.getresponse()
            if response.status != 200:
                raise SystemExit(f"status {response.status}: {response.read().decode()}")
            for line in response:
                data = line.removeprefix(b"data:").strip()
                if data and data != b"[DONE]":
                    self._take(json.loads(data))
        finally:
            connection.close()
        if self.num_tokens != self.max_tokens:
            raise SystemExit(f"{self.num_tokens} of {self.max_tokens} tokens came")

    def _take(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            raise SystemExit(f"a stream failed: {chunk['error']}")
        num_tokens = sum(len(choice.get("token_ids") or ()) for choice in chunk["choices"])
        if num_tokens:
            self.arrivals.append(time.perf_counter())
            self.num_tokens += num_tokens
        self.timeline = (chunk.get("usage") or {}).get("timeline") or self.timeline
