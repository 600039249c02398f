"""The walk over OpenAI's fields: each is honoured, refused by name, or named in a header."""

import itertools
from typing import Any

import pytest
from contract.api.openai_probes import BODIES, VLLM_CHAT, Probe, probe_of
from contract.automatic_scheduler import automatic_gateway

from pagewire_frontend.http.server.ignored_fields import HEADER, MAX_CHARS, header_value, shown_name
from support.oracles.openai_fields import read_fields

PARSER = ("hermes",)


def ignored_in(response: Any) -> list[str]:
    """The fields that the header of an answer names."""
    value = response.headers.get(HEADER, "")
    return value.split(", ") if value else []


@pytest.mark.parametrize("body", BODIES)
def test_every_field_has_an_outcome(body: str) -> None:
    fields, probes = read_fields()[body], BODIES[body][2]
    assert [field for field in fields if probe_of(field, probes) is None] == []
    assert set(probes) - set(fields) == set(), "a field that OpenAI does not have"


async def check(client: Any, body: str, field: str, probe: Probe) -> str:
    """Send a probe; return what is wrong, or ""."""
    path, needed, _ = BODIES[body]
    response = await client.post(path, json={**needed, **probe.fields})
    if probe.outcome == "refused":
        if response.status_code not in (400, 404):
            return f"{field}: {response.status_code} instead of a refusal"
        error = response.json()["error"]
        param = probe.param or field.partition(".")[0]
        return "" if error["param"].partition(".")[0] == param else f"{field}: {error}"
    if response.status_code != 200:
        return f"{field}: {response.status_code} {response.text}"
    named = ignored_in(response)
    wanted = probe.outcome == "ignored"
    is_named = any(name == field or name.startswith(f"{field}.") for name in named)
    return "" if is_named is wanted else f"{field}: the header names {named}"


@pytest.mark.parametrize("body", BODIES)
async def test_every_outcome_is_what_the_table_says(checkpoint: Any, body: str) -> None:
    probes = {**BODIES[body][2], **(VLLM_CHAT if body == "chat" else {})}
    async with automatic_gateway(checkpoint, tool_call_parser=PARSER) as client:
        wrong = [await check(client, body, field, probe) for field, probe in probes.items()]
    assert [text for text in wrong if text] == []


async def test_a_header_names_every_field_once_and_is_bounded(checkpoint: Any) -> None:
    many = {f"nobody_{index}": 1 for index in range(500)}
    turns = [{"role": "user", "content": "hi", "weight": 1}] * 3
    async with automatic_gateway(checkpoint) as client:
        asked = {"messages": turns, "stream": True, "user": None, "bad näme": 1, "b\r\nx": 1}
        short = await client.post("/v1/chat/completions", json=asked)
        long = await client.post("/v1/chat/completions", json={**asked, **many})
    assert ignored_in(short) == ["b??x", "bad?n?me", "messages.weight"]
    assert len(long.headers[HEADER]) <= MAX_CHARS
    assert long.headers[HEADER].endswith(", ...")
    assert header_value(["b", "a", "b"]) == "a, b"
    assert shown_name("a" * 65) == "a" * 61 + "..."


async def test_a_field_of_a_late_turn_is_named(checkpoint: Any) -> None:
    turns = [{"role": "user", "content": ""}] * 300
    late = [*turns, {"role": "user", "content": "hi", "weight": 1}]
    async with automatic_gateway(checkpoint) as client:
        response = await client.post("/v1/chat/completions", json={"messages": late})
    assert ignored_in(response) == ["messages.weight"]


async def test_parts_other_than_text_are_refused_wherever_they_stand(checkpoint: Any) -> None:
    kinds = {
        **dict.fromkeys(("image_url", "input_image", "image", "image_embeds"), "images"),
        **dict.fromkeys(("video_url", "input_video", "video"), "videos"),
        **dict.fromkeys(("input_audio", "audio_url"), "audio parts"),
        "file": "files",
        "thinking": "parts of type 'thinking'",
    }
    text = {"type": "text", "text": "hi"}
    async with automatic_gateway(checkpoint) as client:
        for kind, what in kinds.items():
            part = {"type": kind, kind: {"url": "data:,"}}
            line = f"content: {what} are not supported; only text parts"
            turns = [{"role": "user", "content": "hi"}, {"role": "user", "content": [text, part]}]
            for path in ("/v1/chat/completions", "/v1/embeddings", "/tokenize"):
                response = await client.post(path, json={"messages": turns})
                error = response.json()["error"]
                assert (response.status_code, error["param"]) == (400, "messages"), (path, error)
                assert f"messages.1.{line}" in error["message"]
            output = {"type": "function_call_output", "call_id": "c", "output": [part]}
            for item in ({"role": "user", "content": [part]}, output):
                response = await client.post("/v1/responses", json={"input": [item]})
                error = response.json()["error"]
                assert (response.status_code, error["param"]) == (400, "input"), error
                assert f"0: {what} are not supported; only text parts" in error["message"]


async def test_refusals_say_what_to_use_instead(checkpoint: Any) -> None:
    images = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    asked = [
        ({"functions": [{"name": "f"}]}, "functions is not supported; use tools"),
        ({"messages": images}, "images are not supported; only text parts"),
        ({"temperature": "hot"}, "temperature must be a number"),
        ({"stop": 5}, "stop must be a string or a list"),
        ({"messages": [{"role": "function", "content": "x"}]}, "function is not supported"),
        ({"stream_options": {"include_usage": True}}, "stream_options needs stream true"),
        ({"model": "gpt-4o"}, "the model 'gpt-4o' does not exist; served: tiny"),
    ]
    turns = [{"role": "user", "content": "hi"}]
    async with automatic_gateway(checkpoint) as client:
        for fields, text in asked:
            response = await client.post("/v1/chat/completions", json={"messages": turns, **fields})
            assert response.status_code == (404 if "model" in fields else 400)
            assert text in response.json()["error"]["message"]


async def test_tokens_may_be_named_by_id(checkpoint: Any) -> None:
    async with automatic_gateway(checkpoint) as client:
        more = {"logprobs": True, "top_logprobs": 1, "return_tokens_as_token_ids": True}
        turns = [{"role": "user", "content": "hi"}]
        chat = await client.post("/v1/chat/completions", json={"messages": turns, **more})
        text = await client.post(
            "/v1/completions",
            json={"prompt": "hi", "logprobs": 1, "return_tokens_as_token_ids": True},
        )
    choice = chat.json()["choices"][0]
    for entry in choice["logprobs"]["content"]:
        assert entry["token"].startswith("token_id:")
    # The text has characters that are split over tokens.
    split = [entry["bytes"] for entry in choice["logprobs"]["content"]]
    assert bytes(itertools.chain(*split)).decode() == choice["message"]["content"]
    assert all(
        token.startswith("token_id:") for token in text.json()["choices"][0]["logprobs"]["tokens"]
    )
