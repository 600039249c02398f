"""Prompts in answers: echo, log-probabilities of the prompt, and token ids."""

import asyncio
import json

import pytest
from contract.frontend_gateway import gateway, openai_gateway, post
from contract.frontend_peers import ids_of
from contract.scored_answers import score_tokens, score_whole_prompt

A, B, C, X, Y = (ids_of(char)[0] for char in "abcxy")
TOP = [(X, -0.25), (Y, -1.5)]


def chunks_of(response):
    *events, last, _ = response.text.split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


async def test_an_echo_with_logprobs_begins_with_the_prompt(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(
            client.completions.create(
                model="tiny", prompt="abc", echo=True, logprobs=2, max_tokens=2
            )
        )
        submit = await attach.next("submit")
        assert submit.sampling.prompt_logprobs == 2
        score_whole_prompt(attach, submit)
        score_tokens(attach, submit, [X, Y], [(-0.25, 1, TOP), (-1.5, 2, TOP)])
        attach.finish(submit, 2)
        answer = await call
    [choice] = answer.choices
    assert choice.text == "abcxy"
    assert choice.logprobs.tokens == ["a", "b", "c", "x", "y"]
    assert choice.logprobs.token_logprobs == [None, -1.0, -2.0, -0.25, -1.5]
    assert choice.logprobs.text_offset == [0, 1, 2, 3, 4]
    assert choice.logprobs.top_logprobs[0] is None
    assert choice.logprobs.top_logprobs[1]["b"] == -1.0
    assert len(choice.logprobs.top_logprobs[1]) == 3
    assert choice.logprobs.top_logprobs[4] == {"x": -0.25, "y": -1.5}
    assert "prompt_logprobs" not in choice.model_extra
    assert answer.usage.completion_tokens == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_an_echo_alone_generates_nothing_to_see(checkpoint, stream):
    body = {"prompt": "abc", "echo": True, "max_tokens": 0, "logprobs": 1, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", body)
        submit = await attach.next("submit")
        assert submit.sampling.max_tokens == 1
        score_whole_prompt(attach, submit)
        score_tokens(attach, submit, [X], [(-0.5, 1, TOP[:1])])
        attach.finish(submit, 1)
        response = await call
    bodies = chunks_of(response) if stream else [response.json()]
    [choice] = bodies[0]["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -2.0]
    assert choice["logprobs"]["tokens"] == ["a", "b", "c"]
    assert bodies[-1]["usage"]["completion_tokens"] == 0


async def test_logprobs_of_the_prompt_have_vllms_shape(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"prompt": [A, B], "prompt_logprobs": 1, "n": 2}
        call = post(client, "/v1/completions", body)
        submit = await attach.next("submit")
        assert not submit.sampling.HasField("logprobs")
        score_whole_prompt(attach, submit)
        for choice in range(2):
            score_tokens(attach, submit, [X], [], choice=choice)
            attach.finish(submit, 1, choice=choice)
        answer = (await call).json()
    entry = {
        str(B): {"logprob": -1.0, "rank": 1, "decoded_token": "b"},
        "10": {"logprob": -0.5, "rank": 1, "decoded_token": "("},
    }
    for choice in answer["choices"]:
        assert choice["prompt_logprobs"] == [None, entry]
        assert choice["text"] == "x"


async def test_alternatives_are_as_many_as_were_asked_for_each(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"prompt": "ab", "echo": True, "logprobs": 1, "prompt_logprobs": 3}
        call = post(client, "/v1/completions", body)
        submit = await attach.next("submit")
        assert submit.sampling.prompt_logprobs == 3
        score_whole_prompt(attach, submit)
        score_tokens(attach, submit, [X], [(-0.25, 1, TOP[:1])])
        attach.finish(submit, 1)
        [choice] = (await call).json()["choices"]
    assert len(choice["prompt_logprobs"][1]) == 4
    assert len(choice["logprobs"]["top_logprobs"][1]) == 2


async def test_a_chat_tells_of_its_prompt_at_the_top(checkpoint):
    turns = [{"role": "user", "content": "x"}]
    body = {"messages": turns, "prompt_logprobs": 0, "return_token_ids": True}
    async with gateway(checkpoint) as (client, attach, _):
        for stream in (False, True):
            call = post(client, "/v1/chat/completions", {**body, "stream": stream})
            submit = await attach.next("submit")
            scores = score_whole_prompt(attach, submit)
            attach.say(submit, "yes")
            response = await call
            bodies = chunks_of(response) if stream else [response.json()]
            first, *others = bodies
            assert len(first["prompt_logprobs"]) == len(scores) + 1
            assert first["prompt_logprobs"][0] is None
            assert len(first["prompt_token_ids"]) == len(scores) + 1
            assert not any("prompt_logprobs" in other for other in others)
            ids = [i for one in bodies for c in one["choices"] for i in c.get("token_ids", [])]
            assert ids == ids_of("yes")
            if stream:
                assert first["choices"][0]["delta"]["role"] == "assistant"


async def test_token_ids_of_completions_come_per_choice(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        for stream in (False, True):
            body = {"prompt": ["ab", "c"], "return_token_ids": True, "stream": stream}
            call = post(client, "/v1/completions", body)
            for _ in range(2):
                attach.say(await attach.next("submit"), "é!")
            response = await call
            bodies = chunks_of(response) if stream else [response.json()]
            for index, prompt in enumerate(("ab", "c")):
                parts = [c for one in bodies for c in one["choices"] if c["index"] == index]
                assert parts[0]["prompt_token_ids"] == ids_of(prompt)
                assert not any("prompt_token_ids" in part for part in parts[1:])
                assert [i for part in parts for i in part["token_ids"]] == ids_of("é!")


async def test_an_echo_comes_first_in_a_stream(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"prompt": "abc", "echo": True, "stream": True, "n": 2, "logprobs": 0}
        call = post(client, "/v1/completions", body)
        submit = await attach.next("submit")
        score_whole_prompt(attach, submit)
        for choice, token_id in enumerate((X, Y)):
            score_tokens(attach, submit, [token_id], [(-1.0, 1, [])], choice=choice)
            attach.finish(submit, 1, choice=choice)
        chunks = chunks_of(await call)
    for index, text in enumerate(("abcx", "abcy")):
        parts = [c for one in chunks for c in one["choices"] if c["index"] == index]
        assert parts[0]["text"].startswith("abc")
        assert "".join(part["text"] for part in parts) == text
        tokens = [t for part in parts for t in (part["logprobs"] or {"tokens": []})["tokens"]]
        offsets = [o for p in parts for o in (p["logprobs"] or {"text_offset": []})["text_offset"]]
        assert "".join(tokens) == text
        assert offsets == [0, 1, 2, 3]


async def test_ids_are_echoed_as_text(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"prompt": [2, A, B], "echo": True, "truncate_prompt_tokens": 2}
        call = post(client, "/v1/completions", body)
        attach.say(await attach.next("submit"), "x")
        assert (await call).json()["choices"][0]["text"] == "abx"


async def test_a_chat_echoes_what_the_assistant_said_last(checkpoint):
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Well, "}]
    async with gateway(checkpoint) as (client, attach, _):
        for turns, stream, expected in (
            (said, False, "Well, yes"),
            (said, True, "Well, yes"),
            (said[:1], False, "yes"),
        ):
            body = {"messages": turns, "echo": True, "continue_final_message": True}
            call = post(client, "/v1/chat/completions", {**body, "stream": stream})
            attach.say(await attach.next("submit"), "yes")
            response = await call
            if not stream:
                assert response.json()["choices"][0]["message"]["content"] == expected
                continue
            deltas = [c["delta"] for one in chunks_of(response) for c in one["choices"]]
            assert "".join(delta.get("content", "") for delta in deltas) == expected


async def test_halves_of_characters_look_alike_and_the_likeliest_stands(checkpoint):
    first, second, _ = ids_of("€")
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", {"prompt": "a", "logprobs": 1})
        submit = await attach.next("submit")
        score_tokens(attach, submit, [first], [(-3.0, 2, [(second, -0.25)])])
        attach.finish(submit, 1)
        logprobs = (await call).json()["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [-3.0]
    assert logprobs["top_logprobs"] == [{"\ufffd": -0.25}]
