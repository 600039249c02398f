"""Every answer and every chunk has the shape that OpenAI publishes, whatever was asked for."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from contract.automatic_scheduler import automatic_gateway
from contract.frontend_peers import ids_of

from support.oracles.openai_shapes import check, check_stream, read_stream

Json = dict[str, Any]

TURNS = [{"role": "user", "content": "hi"}]
SCHEMA = {"name": "word", "schema": {"type": "string"}}
USAGE = {"stream_options": {"include_usage": True}}

LENGTHS: list[Json] = [{}, {"max_tokens": 1}, {"max_tokens": 5}]
CHOICES: list[Json] = [{}, {"n": 3}]
STOPS: list[Json] = [{}, {"stop": ","}, {"stop": [",", "no"], "include_stop_str_in_output": True}]
PROMPT_EXTRAS: list[Json] = [{}, {"return_token_ids": True}, {"prompt_logprobs": 1}]
CHAT_OPTIONS: list[list[Json]] = [
    LENGTHS,
    CHOICES,
    STOPS,
    [*PROMPT_EXTRAS, {"response_format": {"type": "json_schema", "json_schema": SCHEMA}}],
    [{}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 2}],
]
COMPLETION_OPTIONS: list[list[Json]] = [
    [*LENGTHS, {"echo": True}, {"echo": True, "max_tokens": 0}],
    CHOICES,
    [{}, {"stop": ","}],
    PROMPT_EXTRAS,
    [{}, {"logprobs": 0}, {"logprobs": 2}],
]
PROMPTS: list[Any] = ["one", ["one", "two"], ids_of("one"), [ids_of("one"), ids_of("two")]]


def chosen_rows(first: int, options: list[list[Json]]) -> Iterator[tuple[int, ...]]:
    """Yield the indexes of options, with `first` in the first list: of all combinations the third
    that has one sum modulo 3, in which any two options of different lists meet."""
    for indexes in itertools.product(*(range(len(one)) for one in options[1:])):
        if sum(indexes) % 3 == first % 3:
            yield (first, *indexes)


def combinations(first: int, options: list[list[Json]]) -> Iterator[Json]:
    """Yield a body per row."""
    for row in chosen_rows(first, options):
        parts = (one[index] for one, index in zip(options, row, strict=True))
        yield {key: value for part in parts for key, value in part.items()}


@pytest.mark.parametrize("options", [CHAT_OPTIONS, COMPLETION_OPTIONS])
def test_any_two_options_meet(options):
    rows = [row for first in range(len(options[0])) for row in chosen_rows(first, options)]
    for one, other in itertools.combinations(range(len(options)), 2):
        pairs = {(row[one], row[other]) for row in rows}
        assert len(pairs) == len(options[one]) * len(options[other])


async def answers_of(client: Any, path: str, body: Json) -> tuple[Json, list[Json], list[Json]]:
    """Return what is answered as a whole, streamed, and streamed with usage."""
    whole = await client.post(path, json=body)
    assert whole.status_code == 200, f"{body}: {whole.text}"
    streams = []
    for more in ({}, USAGE):
        response = await client.post(path, json={**body, "stream": True, **more})
        assert response.status_code == 200, f"{body}: {response.text}"
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        streams.append(read_stream(response.text))
    return whole.json(), streams[0], streams[1]


def joined_text(values: list[Json], index: int) -> tuple[str, list[Any], str]:
    """Return what all chunks say of one choice: text, log-probabilities, and how it ended."""
    text, logprobs, reason = "", [], ""
    for choice in (choice for value in values for choice in value["choices"]):
        if choice["index"] != index:
            continue
        text += (choice["delta"].get("content") or "") if "delta" in choice else choice["text"]
        logprobs.extend(entries_of(choice.get("logprobs")))
        reason = choice["finish_reason"] or reason
    return text, logprobs, reason


def entries_of(logprobs: Json | None) -> list[Any]:
    """Return one entry per token, of either endpoint's log-probabilities."""
    if logprobs is None:
        return []
    if "content" in logprobs:
        return logprobs["content"] or []
    columns = [logprobs[key] for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")]
    return list(zip(*columns, strict=True))


def check_same(whole: Json, values: list[Json]) -> None:
    """Assert that a stream says what the whole answer says."""
    for choice in whole["choices"]:
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        wanted = text, entries_of(choice["logprobs"]), choice["finish_reason"]
        assert joined_text(values, choice["index"]) == wanted


@pytest.mark.parametrize("length", range(len(LENGTHS)))
async def test_chat(checkpoint, length):
    async with automatic_gateway(checkpoint) as client:
        for body in combinations(length, CHAT_OPTIONS):
            asked = {"messages": TURNS, **body}
            whole, values, with_usage = await answers_of(client, "/v1/chat/completions", asked)
            check("ChatCompletion", whole)
            check_stream("ChatChunk", values, has_usage=False)
            check_stream("ChatChunk", with_usage, has_usage=True)
            check_same(whole, values)
            assert with_usage[-1]["usage"] == whole["usage"]
            assert len(whole["choices"]) == body.get("n", 1)
            for choice in whole["choices"]:
                assert (choice["logprobs"] is None) == ("logprobs" not in body)


@pytest.mark.parametrize("length", range(len(COMPLETION_OPTIONS[0])))
async def test_completions(checkpoint, length):
    async with automatic_gateway(checkpoint) as client:
        for number, body in enumerate(combinations(length, COMPLETION_OPTIONS)):
            prompt = PROMPTS[number % len(PROMPTS)]
            asked = {"prompt": prompt, **body}
            whole, values, with_usage = await answers_of(client, "/v1/completions", asked)
            check("Completion", whole)
            check_stream("CompletionChunk", values, has_usage=False)
            check_stream("CompletionChunk", with_usage, has_usage=True)
            check_same(whole, values)
            assert with_usage[-1]["usage"] == whole["usage"]
            check_columns(whole, is_echo="echo" in body)


def check_columns(whole: Json, *, is_echo: bool) -> None:
    """Assert that only the first token of an echoed prompt has no log-probability, and that each
    token stands where the one before it ends."""
    for choice in whole["choices"]:
        entries = entries_of(choice["logprobs"])
        missing = [i for i, (_, *values, _) in enumerate(entries) if None in values]
        assert missing == ([0] if is_echo and entries else [])
        ends = itertools.accumulate((len(token) for token, *_ in entries), initial=0)
        assert [offset for *_, offset in entries] == list(ends)[:-1]


async def test_beams_and_best_of(checkpoint):
    async with automatic_gateway(checkpoint) as client:
        for more in ({"use_beam_search": True, "n": 2}, {"best_of": 3, "n": 2}):
            answer = await client.post("/v1/completions", json={"prompt": "x", **more})
            check("Completion", answer.json())
            answer = await client.post("/v1/chat/completions", json={"messages": TURNS, **more})
            check("ChatCompletion", answer.json())


async def test_embeddings(checkpoint):
    async with automatic_gateway(checkpoint) as client:
        for prompt, form in itertools.product(PROMPTS, ("float", "base64", None)):
            body = {"input": prompt, "encoding_format": form}
            answer = await client.post("/v1/embeddings", json=body)
            assert answer.status_code == 200, answer.text
            check("EmbeddingList", answer.json())
            data = answer.json()["data"]
            kind = str if form == "base64" else list
            assert all(isinstance(item["embedding"], kind) for item in data)
            assert [item["index"] for item in data] == list(range(len(data)))


async def test_models(checkpoint):
    async with automatic_gateway(checkpoint) as client:
        listed = (await client.get("/v1/models")).json()
        check("ModelList", listed)
        [model] = listed["data"]
        found = (await client.get(f"/v1/models/{model['id']}")).json()
        check("Model", found)
        assert found == model


ERRORS: list[tuple[str, str, bytes | Json | None, int]] = [
    ("GET", "/nothing", None, 404),
    ("GET", "/v1", None, 404),
    ("GET", "/v1/models/nope", None, 404),
    ("GET", "/v1/models/org/nope", None, 404),
    ("GET", "/v1/chat/completions", None, 405),
    ("DELETE", "/v1/models", None, 405),
    ("POST", "/v1/chat/completions", b"{", 400),
    ("POST", "/v1/chat/completions", b"", 400),
    ("POST", "/v1/chat/completions", b"[]", 400),
    ("POST", "/v1/chat/completions", b"\xff", 400),
    ("POST", "/v1/chat/completions", {"messages": TURNS, "model": "nope"}, 404),
    ("POST", "/v1/chat/completions", {"messages": []}, 400),
    ("POST", "/v1/chat/completions", {"messages": TURNS, "temperature": 3, "stream": True}, 400),
    ("POST", "/v1/completions", {"prompt": "x" * 600, "stream": True}, 400),
    ("POST", "/v1/completions", {"prompt": "x" * 4000}, 413),
    ("POST", "/v1/completions", {"prompt": "x", "n": 0}, 400),
    ("POST", "/v1/embeddings", {}, 400),
    ("POST", "/v1/embeddings", {"input": "x", "model": "nope"}, 404),
]


async def test_errors(checkpoint):
    async with automatic_gateway(checkpoint, max_body_size=2000) as client:
        for method, path, body, status in ERRORS:
            sent = {"content": body} if isinstance(body, bytes) else {"json": body}
            answer = await client.request(method, path, **sent)
            assert answer.status_code == status, f"{method} {path} {body}: {answer.text}"
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-request-id"]
            check("ErrorEnvelope", answer.json())
