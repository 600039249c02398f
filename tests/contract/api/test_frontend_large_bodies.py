"""Large bodies at every endpoint that takes one: none of them is parsed where the streams are, and
what is done there is not long."""

import asyncio

import orjson
import pytest
from contract.frontend_gateway import gateway

from pagewire_frontend.http.body import json_reader
from pagewire_frontend.http.body.json_body import parse_object
from pagewire_shared.process import loop_watch

MAX_BODY_BYTES = 32 * 1024**2
MOST_SECONDS = 0.5
"""Of the processor in one piece; client and server share the loop here."""
JSON = {"content-type": "application/json"}
# Its colons cost a parser that looks for names a second.
TEXT = '":" said: ' * (MAX_BODY_BYTES // 14)


@pytest.fixture
def parsed_here(monkeypatch):
    """Sizes of the bodies that were parsed in the frontend's own process."""
    sizes = []

    def noting(raw):
        sizes.append(len(raw))
        return parse_object(raw)

    monkeypatch.setattr(json_reader, "parse_object", noting)
    return sizes


@pytest.fixture
def held(monkeypatch):
    """What held the event loop, and for how long."""
    found = []
    real = loop_watch.held_seconds

    def noting(wall, cpu, sight=None, delayed=None):
        seconds = real(wall, cpu, sight, delayed)
        if seconds and cpu >= MOST_SECONDS:
            found.append((seconds, sight.name if sight else "unknown"))
        return seconds

    monkeypatch.setattr(loop_watch, "held_seconds", noting)
    return found


async def test_every_endpoint_reads_large_bodies_elsewhere(checkpoint, parsed_here):
    wrong = b'{"prompt": "' + b"x" * json_reader.LARGE_BYTES + b'", "prompt": 1}'
    async with gateway(checkpoint) as (client, _, _):
        paths = (await client.get("/openapi.json")).json()["paths"]
        with_body = [path for path, methods in paths.items() if "requestBody" in str(methods)]
        assert len(with_body) >= 6
        for path in with_body:
            answer = await client.post(path, content=wrong, headers=JSON)
            assert answer.status_code == 400, path
            assert '"prompt"' in answer.json()["error"]["message"], path
        assert parsed_here == []
        # Small ones would be seen here.
        await client.post("/tokenize", json={"prompt": "x"})
        assert len(parsed_here) == 1


@pytest.mark.long
async def test_a_body_of_32_mib_does_not_hold_the_event_loop(checkpoint, held, parsed_here):
    bodies = {
        "/v1/completions": {"prompt": TEXT},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": TEXT}]},
        "/v1/embeddings": {"input": ["a text"] * 500_000},
        "/v1/responses": {"input": TEXT},
        "/tokenize": {"prompt": TEXT, "x": [{"y": [1, 2, 3]}] * 10_000},
        "/detokenize": {"tokens": list(range(100_000, 600_000))},
    }
    async with gateway(checkpoint, max_body_size=MAX_BODY_BYTES) as (client, _, _):
        await client.get("/live")
        with loop_watch.watched_loop():
            for path, body in bodies.items():
                content = await asyncio.to_thread(orjson.dumps, body)
                answer = await client.post(path, content=content, headers=JSON)
                assert answer.status_code == 400, path
            await asyncio.sleep(0.1)
    assert held == []
    assert parsed_here == []
