"""The least a Python server does for a stream: bare ASGI on uvicorn, one chunk of a chat completion
built with orjson per token, made in the process itself. What the gateway is compared to.

    python benchmarks/parts/bare_sse.py --port 18100 --step-ms 10
"""

import argparse
import asyncio
from typing import Any

import orjson
import uvicorn

COMMON = {
    "id": "chatcmpl-0123456789abcdef0123456789abcdef",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "pagewire-builtin",
}


class Bare:
    """Streams `max_tokens` chunks, one per step, to whoever posts."""

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._queues: set[asyncio.Queue[str]] = set()
        self._pump: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
        body = (await receive())["body"]
        num_tokens = orjson.loads(body)["max_tokens"]
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._queues.add(queue)
        for _ in range(num_tokens):
            text = await queue.get()
            choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
            chunk = b"data: " + orjson.dumps({**COMMON, "choices": [choice]}) + b"\n\n"
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._queues.discard(queue)
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self._step_seconds, loop.time())
            await asyncio.sleep(max(0.0, due - loop.time()))
            for queue in self._queues:
                queue.put_nowait(" little")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step-ms", type=float, default=10.0)
    arguments = parser.parse_args()
    app = Bare(arguments.step_ms / 1000)
    uvicorn.run(
        app,
        port=arguments.port,
        http="httptools",
        loop="uvloop",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
