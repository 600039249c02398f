"""Every error of the gateway is the OpenAI envelope and names its field."""

from contract.frontend_gateway import gateway, post

BEAM = {"prompt": "x", "use_beam_search": True, "n": 2}
BAD_BODIES = [
    ({"prompt": ""}, "prompt", "invalid_value"),
    ({"prompt": []}, "prompt", "invalid_value"),
    ({"prompt": [[]]}, "prompt", "invalid_value"),
    ({}, "prompt", "invalid_type"),
    ({"prompt": 5}, "prompt", "invalid_type"),
    ({"prompt": "x", "max_tokens": 0}, "max_tokens", "invalid_value"),
    ({"prompt": "x", "max_tokens": "5"}, "max_tokens", "invalid_type"),
    ({"prompt": "x", "max_tokens": 5.5}, "max_tokens", "invalid_type"),
    ({"prompt": "x", "max_tokens": True}, "max_tokens", "invalid_type"),
    ({"prompt": "x", "max_tokens": 512}, "max_tokens", "context_length_exceeded"),
    ({"prompt": "x", "temperature": "1"}, "temperature", "invalid_type"),
    ({"prompt": "x", "temperature": -0.1}, "temperature", "invalid_value"),
    ({"prompt": "x", "top_p": 0}, "top_p", "invalid_value"),
    ({"prompt": "x", "n": 0}, "n", "invalid_value"),
    ({"prompt": "x", "stop": ["a"] * 5}, "stop", "invalid_value"),
    ({"prompt": "x", "stop": 3}, "stop", "invalid_type"),
    ({"prompt": "x", "seed": 2**70}, "seed", None),
    ({"prompt": "x", "logprobs": 21}, "logprobs", "invalid_value"),
    ({"prompt": "x", "stream": "yes"}, "stream", "invalid_type"),
    ({"prompt": "x", "suffix": "y"}, "suffix", "unsupported_parameter"),
    ({"prompt": "x", "n": 3, "best_of": 2}, "best_of", "invalid_value"),
    ({"prompt": "x", "best_of": 129}, "best_of", "invalid_value"),
    ({"prompt": "x", "best_of": 2, "stream": True}, "best_of", "invalid_value"),
    ({"prompt": "x", "priority": 101}, "priority", "invalid_value"),
    ({"prompt": "x", "priority": -101}, "priority", "invalid_value"),
    ({"prompt": "x", "priority": 1.5}, "priority", "invalid_type"),
    ({"prompt": "x", "length_penalty": 2}, "length_penalty", "invalid_value"),
    ({"prompt": "x", "early_stopping": "never"}, "early_stopping", "invalid_value"),
    ({"prompt": "x", "use_beam_search": 1}, "use_beam_search", "invalid_type"),
    ({**BEAM, "early_stopping": "soon"}, "early_stopping", "invalid_type"),
    ({**BEAM, "length_penalty": 11}, "length_penalty", "invalid_value"),
    ({**BEAM, "stream": True}, "stream", "invalid_value"),
    ({**BEAM, "n": 17}, "n", "invalid_value"),
    ({**BEAM, "best_of": 4}, "best_of", "invalid_value"),
    ({**BEAM, "temperature": 0.5}, "temperature", "invalid_value"),
    ({**BEAM, "top_p": 0.5}, "top_p", "invalid_value"),
    ({**BEAM, "top_k": 5}, "top_k", "invalid_value"),
    ({**BEAM, "min_p": 0.5}, "min_p", "invalid_value"),
    ({**BEAM, "logprobs": 1}, "logprobs", "unsupported_parameter"),
    ({"prompt": "x", "model": 5}, "model", "invalid_type"),
    ({"prompt": [99999]}, "prompt", "invalid_value"),
    ({"prompt": "x", "presence_penalty": 2.1}, "presence_penalty", "invalid_value"),
    ({"prompt": "x", "frequency_penalty": -2.1}, "frequency_penalty", "invalid_value"),
    ({"prompt": "x", "repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
    ({"prompt": "x", "logit_bias": {"a": 1}}, "logit_bias", "invalid_value"),
    ({"prompt": "x", "logit_bias": {"-1": 1}}, "logit_bias", "invalid_value"),
    ({"prompt": "x", "logit_bias": {"05": 1}}, "logit_bias", "invalid_value"),
    ({"prompt": "x", "logit_bias": {"9" * 5000: 1}}, "logit_bias", "invalid_value"),
    ({"prompt": "x", "logit_bias": {"²": 1}}, "logit_bias", "invalid_value"),
    ({"prompt": "x", "logit_bias": {"5": 101}}, "logit_bias", "invalid_value"),
    ({"prompt": "x", "logit_bias": {"5": "1"}}, "logit_bias", "invalid_type"),
    ({"prompt": "x", "logit_bias": {str(i): 1 for i in range(301)}}, "logit_bias", None),
    ({"prompt": "x", "logit_bias": {"259": 1}}, "logit_bias", "invalid_value"),
    ({"prompt": "x", "allowed_token_ids": [259]}, "allowed_token_ids", "invalid_value"),
    ({"prompt": "x", "allowed_token_ids": [-1]}, "allowed_token_ids", "invalid_value"),
    ({"prompt": "x", "stop_token_ids": [1, 259]}, "stop_token_ids", "invalid_value"),
    ({"prompt": "x", "bad_words": "word"}, "bad_words", "invalid_type"),
    ({"prompt": "x", "bad_words": [""]}, "bad_words", "invalid_value"),
    ({"prompt": "x", "bad_words": ["  "]}, "bad_words", "invalid_value"),
    ({"prompt": "x", "bad_words": ["😀" * 256]}, "bad_words", "invalid_value"),
    ({"prompt": "x", "bad_words": ["x"] * 65}, "bad_words", "invalid_value"),
    ({"prompt": "x", "prompt_logprobs": 21}, "prompt_logprobs", "invalid_value"),
    ({"prompt": "x", "prompt_logprobs": True}, "prompt_logprobs", "invalid_type"),
    ({"prompt": "x", "echo": "yes"}, "echo", "invalid_type"),
    ({"prompt": "x", "echo": True, "max_tokens": 0, "min_tokens": 2}, "min_tokens", None),
    ({"prompt": "x", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "invalid_value"),
    ({"prompt": "x", "truncate_prompt_tokens": 513}, "truncate_prompt_tokens", "invalid_value"),
    ({"prompt": "x", "truncate_prompt_tokens": -1, "max_tokens": 512}, "max_tokens", None),
    ({"prompt": "x", "structured_outputs": {}}, "structured_outputs", "invalid_value"),
    ({"prompt": "x", "structured_outputs": {"regex": ""}}, "structured_outputs", "invalid_value"),
    (
        {"prompt": "x", "structured_outputs": {"regex": "a", "json_object": True}},
        "structured_outputs",
        "invalid_value",
    ),
    (
        {"prompt": "x", "structured_outputs": {"structural_tag": "{}"}},
        "structured_outputs",
        "unsupported_parameter",
    ),
    ({"prompt": "x", "structured_outputs": {"json": "{"}}, "structured_outputs", "invalid_value"),
    ({"prompt": "x", "guided_json": "{"}, "guided_json", "invalid_value"),
    ({"prompt": "x", "guided_choice": []}, "guided_choice", "invalid_value"),
    ({"prompt": "x", "guided_regex": "a" * 1025}, "guided_regex", "invalid_value"),
    (
        {"prompt": "x", "guided_regex": "a", "structured_outputs": {"regex": "a"}},
        "guided_regex",
        "invalid_value",
    ),
    ({"prompt": "x", "guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", None),
    ({"prompt": "x", "response_format": {"type": "xml"}}, "response_format", "invalid_type"),
    ({"prompt": "x", "response_format": {"type": "json_schema"}}, "response_format", None),
    ({**BEAM, "echo": True, "logprobs": 1}, "logprobs", "unsupported_parameter"),
    ({**BEAM, "guided_regex": "a"}, "guided_regex", "invalid_value"),
    ({**BEAM, "response_format": {"type": "json_object"}}, "response_format", "invalid_value"),
    ({"prompt": "x", "guided_whitespace_pattern": "a"}, "guided_whitespace_pattern", None),
    ({**BEAM, "presence_penalty": 1}, "presence_penalty", "invalid_value"),
    ({**BEAM, "prompt_logprobs": 1}, "prompt_logprobs", "invalid_value"),
    ({"prompt": [-1]}, "prompt", "invalid_value"),
]
BAD_CHATS = [
    ({"messages": []}, "messages", "invalid_type"),
    ({"messages": [{"role": "nobody", "content": "x"}]}, "messages", "invalid_type"),
    ({"messages": [{"role": "user"}]}, "messages", "invalid_value"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", None),
    ({"tools": [{"type": "function"}]}, "tools", "invalid_type"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        "response_format",
        "invalid_type",
    ),
    (
        {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
        "response_format",
        "invalid_value",
    ),
    (
        {"add_generation_prompt": True, "continue_final_message": True},
        "continue_final_message",
        "invalid_value",
    ),
    (
        {"chat_template_kwargs": {f"x{i}": 1 for i in range(17)}},
        "chat_template_kwargs",
        "invalid_value",
    ),
    ({"chat_template_kwargs": {"messages": "x"}}, "chat_template_kwargs", "invalid_value"),
    (
        {"chat_template_kwargs": {"add_generation_prompt": False}},
        "chat_template_kwargs",
        "invalid_value",
    ),
    ({"chat_template_kwargs": {"bos_token": "x"}}, "chat_template_kwargs", "invalid_value"),
    ({"chat_template_kwargs": {"x": [1]}}, "chat_template_kwargs", "invalid_value"),
    ({"chat_template_kwargs": [1]}, "chat_template_kwargs", "invalid_type"),
    ({"use_beam_search": True, "stream": True}, "stream", "invalid_value"),
    ({"use_beam_search": True, "logprobs": True}, "logprobs", "unsupported_parameter"),
    ({"top_logprobs": 3}, "top_logprobs", "invalid_value"),
    ({"max_completion_tokens": 0}, "max_completion_tokens", "invalid_value"),
    ({"max_completion_tokens": 600}, "max_completion_tokens", "context_length_exceeded"),
]


async def test_every_bad_field_is_a_400_that_names_it(checkpoint):
    chat = {"messages": [{"role": "user", "content": "x"}]}
    cases = [("/v1/completions", *case) for case in BAD_BODIES]
    cases += [("/v1/chat/completions", {**chat, **body}, *rest) for body, *rest in BAD_CHATS]
    async with gateway(checkpoint) as (client, _, _):
        for path, body, param, code in cases:
            response = await client.post(path, json=body)
            assert response.status_code == 400, (body, response.text)
            error = response.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["type"] == "invalid_request_error"
            assert error["param"] == param, (body, error)
            assert code is None or error["code"] == code, (body, error)


async def test_neutral_values_and_unknown_fields_are_accepted(checkpoint):
    neutral = {
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "logit_bias": {},
        "echo": False,
        "suffix": None,
        "best_of": 1,
        "use_beam_search": False,
        "length_penalty": 1,
        "early_stopping": False,
        "user": "someone",
        "made_up": {"x": 1},
        "stop": None,
        "temperature": 1,
    }
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", {"prompt": "x", **neutral})
        attach.say(await attach.next("submit"), "y")
        assert (await call).status_code == 200


async def test_errors_outside_the_endpoints_have_the_envelope(checkpoint):
    async with gateway(checkpoint, max_body_size=1000) as (client, _, _):
        responses = {
            404: await client.get("/v1/nothing"),
            405: await client.get("/v1/completions"),
            400: await client.post("/v1/completions", content=b'{"prompt": '),
            413: await client.post("/v1/completions", json={"prompt": "x" * 2000}),
        }

        async def chunks():
            for _ in range(20):
                yield b" " * 100

        chunked = await client.post("/v1/completions", content=chunks())
        unnamed = await client.get("/v1/models/org/other")
    assert chunked.status_code == 413
    assert unnamed.json()["error"]["code"] == "model_not_found"
    for status, response in responses.items():
        assert response.status_code == status
        assert response.headers["content-type"] == "application/json"
        assert "x-request-id" in response.headers
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert all(value is None or isinstance(value, str) for value in error.values())
