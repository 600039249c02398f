"""Sends requests that wait for each other, and asks why they took so long."""

import asyncio
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx

from pagewire.client.explain_client import explain_request
from support.cells.clusters import Cluster

SECONDS = 60.0
LONG, SHORT = 600, 4
"""Tokens of requests, of which the long ones hold their slots for a while."""


class Crowd:
    """Sends requests that go on beside the test; their labels are their `x-request-id`."""

    def __init__(self, cell: Cluster, pool: ThreadPoolExecutor, key: str | None = None) -> None:
        self._cell = cell
        self._pool = pool
        self._key = key

    def run(self, label: str, num_tokens: int = LONG, **fields: Any) -> Future[None]:
        """Send a request, and return when it has its first token."""
        has_begun = threading.Event()
        future = self._pool.submit(self._send, label, num_tokens, has_begun, **fields)
        assert has_begun.wait(SECONDS)
        return future

    def queue(self, label: str, num_tokens: int = SHORT, **fields: Any) -> Future[None]:
        """Send a request that finds no room, and return when it has surely come."""
        future = self._pool.submit(self._send, label, num_tokens, threading.Event(), **fields)
        time.sleep(0.15)
        return future

    def _send(
        self,
        label: str,
        num_tokens: int,
        has_begun: threading.Event,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> None:
        default = {} if self._key is None else {"authorization": "Bearer sk-first"}
        body = {
            "model": self._cell.model,
            "prompt": list(range(10, 40)),
            "max_tokens": num_tokens,
            "ignore_eos": True,
            "stream": True,
        }
        with httpx.stream(
            "POST",
            f"{self._cell.http_url}/v1/completions",
            json=body | fields,
            headers={**default, "x-request-id": label, **(headers or {})},
            timeout=SECONDS,
        ) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                assert '"error"' not in line, line
                has_begun.set()

    def explained(self, label: str) -> str:
        """Return the first line of `pagewire explain` about a request."""
        asked = explain_request(self._cell.grpc_address, label, api_key=self._key)
        return asyncio.run(asked).summary
