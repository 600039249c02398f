"""No handler holds the event loop of a frontend, whatever it is sent: what the watch of the loop
finds is counted, by time of the processor, with a wide margin."""

import asyncio

import orjson
from contract.frontend_gateway import gateway, post

from pagewire_shared.process import loop_watch

MOST_SECONDS = 0.5
"""Of the processor in one piece; client and server share the loop here."""
LONG = "word " * 600_000
ENCODED = "word " * 1_000


async def test_no_request_holds_the_event_loop(checkpoint, monkeypatch):
    found = []
    real = loop_watch.held_seconds

    def noting(wall, cpu, sight=None, delayed=None):
        seconds = real(wall, cpu, sight, delayed)
        if seconds and cpu >= MOST_SECONDS:
            found.append((seconds, sight.name if sight else "unknown"))
        return seconds

    monkeypatch.setattr(loop_watch, "held_seconds", noting)
    said = [{"role": "user", "content": LONG}]
    bodies = {
        "/v1/completions": {"prompt": ENCODED, "truncate_prompt_tokens": 8, "max_tokens": 1},
        "/v1/chat/completions": {"messages": said},
        "/v1/embeddings": {"input": LONG},
        "/v1/responses": {"input": LONG},
        "/tokenize": {"prompt": ENCODED},
        "/detokenize": {"tokens": [65] * 400_000},
    }
    wrong = [
        b'{"messages": [' + b'"",' * 400_000 + b"1]}",
        b'{"messages": [' + b"{}," * 30_000 + b"1]}",
        b'{"messages": [], "x": [' + b"[]," * 400_000 + b"1]}",
        b" " * 3_000_000 + orjson.dumps({"messages": said}),
    ]
    json = {"content-type": "application/json"}
    async with gateway(checkpoint) as (client, attach, _):
        await client.get("/live")
        with loop_watch.watched_loop():
            for path, body in bodies.items():
                call = post(client, path, body, timeout=60)
                if path == "/v1/completions":
                    attach.say(await attach.next("submit"), "y")
                assert (await call).status_code in (200, 400), path
            for content in wrong:
                call = client.post("/v1/chat/completions", content=content, headers=json)
                assert (await call).status_code in (400, 413)
            await asyncio.sleep(0.1)
    assert found == []
