"""Guided decoding through real processes, by a model that knows nothing: what it says is in the
language all the same, and without masks it is not."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest
from tokenizers import Tokenizer

from pagewire import LLM, RequestOutput, SamplingParams
from pagewire_protos.frontend.v1 import inference_pb2_grpc
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from support.cells.guided_cell import Judge, start_guided_llm
from support.checkpoints.checkpoints import EOS_TOKEN_ID
from support.oracles.bounded_languages import (
    BOUNDED_LANGUAGES,
    MAX_TOKENS,
    accepts,
    json_object_is_valid,
)
from support.oracles.grammars import Language
from support.traffic.streams import Stream, completion, follow_all

NUM_PER_LANGUAGE = 50
LEAST_COMPLETE = 0.95
NAMED = {language.name: language for language in BOUNDED_LANGUAGES}
# Not bounded, so used apart.
ANY_OBJECT = Language("object", StructuredOutputsParams(json_object=True), json_object_is_valid)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guided") / "model"


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with start_guided_llm(folder) as made:
        yield made


@pytest.fixture(scope="module")
def judge(llm: LLM, folder: Path) -> Judge:
    return Judge(folder)


def asked(language: Language, seed: int = 0, **more: Any) -> SamplingParams:
    fields = {"temperature": 1.0, "seed": seed, "max_tokens": MAX_TOKENS, **more}
    return SamplingParams(structured_outputs=language.params, **fields)


def generate(llm: LLM, params: list[SamplingParams]) -> list[RequestOutput]:
    prompts = [f"Say {number}:" for number in range(len(params))]
    return llm.generate(prompts, params, use_tqdm=False)


WRONG = {
    "person": '{"name": "Ada Lovelace", "age": 36, "tags": []}',
    "tree": "[1, null]",
    "enum": "2",
    "integer": "4322",
    "date": '"2026-02-30"',
    "patterns": "[]",
    "optional": '{"a": true}',
    "nested": '{"outer": {"inner": ["a", "b", "c"]}}',
    "any-of": "6",
    "pair": '["no", "ja", 1]',
    "event": '{"kind": "größe", "on": "2026-01-01", "level": 3, "more": 0}',
    "plate": "AB12-a",
    "version": "v01.1",
    "cjk": "一。",
    "lark": "1+2+3+4+5",
    "gbnf": "hello abcd",
    "call": "max(1,2,3,4,5)",
    "matching": "[<a]",
    "moods": "yesterda",
    "cities": "Łó ",
}


def test_what_is_nearly_in_a_language_is_not(judge: Judge, folder: Path) -> None:
    """Or the checks below would say nothing."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert set(WRONG) == set(NAMED)
    for name, text in WRONG.items():
        assert not accepts(NAMED[name], text), name
        token_ids = [*tokenizer.encode(text, add_special_tokens=False).ids, EOS_TOKEN_ID]
        assert not judge.is_prefix(NAMED[name], token_ids), name


def test_a_thousand_outputs_are_in_their_language(llm: LLM, judge: Judge) -> None:
    languages = list(BOUNDED_LANGUAGES) * NUM_PER_LANGUAGE
    results = generate(llm, [asked(one, seed) for seed, one in enumerate(languages)])
    complete, texts = Counter[str](), set()
    for language, result in zip(languages, results, strict=True):
        [output] = result.outputs
        texts.add(output.text)
        if judge.is_complete(language, output):
            complete[language.name] += 1
            continue
        assert output.finish_reason == "length", f"{language.name}: {output.text!r}"
        assert judge.is_prefix(language, output.token_ids), f"{language.name}: {output.text!r}"
    assert complete.total() >= LEAST_COMPLETE * len(languages), complete
    # Half or more of some language may be equal: there are three texts of it.
    assert len(texts) > len(languages) / 3


def test_without_masks_next_to_nothing_is(llm: LLM, judge: Judge) -> None:
    """The same prompts and seeds. 64 tokens are enough: few texts above are longer."""
    languages = list(BOUNDED_LANGUAGES) * 5
    params = [asked(one, seed, max_tokens=64) for seed, one in enumerate(languages)]
    results = generate(llm, [one.with_(structured_outputs=None) for one in params])
    pairs = list(zip(languages, [result.outputs[0] for result in results], strict=True))
    assert sum(accepts(language, output.text) for language, output in pairs) <= 1
    assert sum(judge.is_prefix(language, output.token_ids) for language, output in pairs) <= 1


def test_what_is_cut_short_is_a_prefix(llm: LLM, judge: Judge) -> None:
    languages = [*BOUNDED_LANGUAGES, ANY_OBJECT] * 2
    results = generate(llm, [asked(one, i, max_tokens=4) for i, one in enumerate(languages)])
    outputs = [result.outputs[0] for result in results]
    assert sum(output.finish_reason == "length" for output in outputs) > len(outputs) / 2
    for language, output in zip(languages, outputs, strict=True):
        assert judge.is_prefix(language, output.token_ids), language.name


def test_any_json_object(llm: LLM, judge: Judge) -> None:
    """What has no bound may not come to an end."""
    for result in generate(llm, [asked(ANY_OBJECT, seed, max_tokens=100) for seed in range(20)]):
        [output] = result.outputs
        assert judge.is_prefix(ANY_OBJECT, output.token_ids), output.text
        if output.finish_reason == "stop":
            assert accepts(ANY_OBJECT, output.text)


@pytest.mark.parametrize("name", ["person", "lark", "cities"])
def test_choices_follow_the_grammar_each_in_its_own_way(llm: LLM, name: str) -> None:
    params = [asked(NAMED[name], seed, n=3) for seed in range(4)]
    results = generate(llm, params)
    for result in results:
        assert len(result.outputs) == 3
        assert all(accepts(NAMED[name], output.text) for output in result.outputs)
    assert any(len({output.text for output in result.outputs}) == 3 for result in results)
    assert [again.outputs for again in generate(llm, params)] == [r.outputs for r in results]


def test_bias_and_penalties_choose_among_what_the_grammar_leaves(llm: LLM) -> None:
    letters = Language("letters", StructuredOutputsParams(regex="[ab]{30}"), lambda _: True)
    outside = llm.generate("z", SamplingParams(max_tokens=1, temperature=0.0), use_tqdm=False)
    forced = {outside[0].outputs[0].token_ids[0]: 100.0}
    rules: list[dict[str, Any]] = [
        {},
        {"frequency_penalty": 2.0},
        {"presence_penalty": 2.0, "repetition_penalty": 5.0},
        {"logit_bias": forced},
    ]
    params = [asked(letters, temperature=0.0, **rule) for rule in rules]
    free, *others, biased = [
        result.outputs[0] for result in llm.generate(["z"] * 4, params, use_tqdm=False)
    ]
    for output in (free, *others, biased):
        assert output.finish_reason == "stop"
        assert len(output.text) == 30
        assert set(output.text) <= {"a", "b"}
    for output in others:
        assert len(set(output.token_ids)) > len(set(free.token_ids))
    # No bias brings back what the grammar excludes.
    assert biased.token_ids == free.token_ids
    against = asked(letters, temperature=0.0, logit_bias={free.token_ids[0]: -100.0})
    [result] = llm.generate("z", against, use_tqdm=False)
    assert result.outputs[0].token_ids[0] != free.token_ids[0]
    assert set(result.outputs[0].text) <= {"a", "b"}


def test_the_grammar_is_stronger_than_min_tokens(llm: LLM) -> None:
    """Behind a complete text come ends of sequence alone, until there are enough tokens."""
    texts = ("yes", "no")
    choice = Language("choice", StructuredOutputsParams(choice=texts), lambda text: text in texts)
    for result in generate(llm, [asked(choice, seed, min_tokens=20) for seed in range(4)]):
        [output] = result.outputs
        assert accepts(choice, output.text)
        assert output.finish_reason == "stop"
        assert len(output.token_ids) == 21
        assert set(output.token_ids[len(output.text) :]) == {EOS_TOKEN_ID}


def body_of(language: Language, **more: Any) -> dict[str, Any]:
    params = language.params
    names = {"json_schema": "json"}
    kind = names.get(params.kind, params.kind)
    value = list(params.choice) if params.choice else params.text
    return {
        "prompt": "Say it:",
        "max_tokens": MAX_TOKENS,
        "temperature": 1,
        "seed": 5,
        "structured_outputs": {kind: value},
        **more,
    }


def test_streams_over_http(llm: LLM) -> None:
    """Pieces never hold half of a character, and make up what comes at once otherwise."""
    with httpx.Client(base_url=f"{llm.cluster.http_url}/v1", timeout=60.0) as client:
        for language in BOUNDED_LANGUAGES:
            whole = client.post("/completions", json=body_of(language))
            assert whole.status_code == 200, whole.text
            [expected] = whole.json()["choices"]
            assert accepts(language, expected["text"]), language.name
            streamed = client.post("/completions", json=body_of(language, stream=True))
            *events, last, _ = streamed.text.split("\n\n")
            assert last == "data: [DONE]"
            pieces = [json.loads(event.removeprefix("data: "))["choices"] for event in events]
            choices = [choice for [choice] in filter(None, pieces)]
            assert "".join(choice["text"] for choice in choices) == expected["text"]
            assert not any("\ufffd" in choice["text"] for choice in choices)
            assert choices[-1]["finish_reason"] == expected["finish_reason"] == "stop"


BOMBS: list[dict[str, Any]] = [
    {"type": "integer", "multipleOf": 99_999_999},
    {"allOf": [{"type": "string", "pattern": f".*a.{{{n}}}"} for n in range(30)]},
]


async def with_bombs(llm: LLM, streams: list[Stream]) -> list[httpx.Response]:
    """Post BOMBS in the middle of the streams; return what they got."""
    url = f"{llm.cluster.http_url}/v1"
    async with (
        grpc.aio.insecure_channel(llm.cluster.grpc_address) as channel,
        httpx.AsyncClient(base_url=url, timeout=60.0) as client,
    ):
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        followers = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        while not all(stream.token_ids for stream in streams):
            await asyncio.sleep(0.001)
        assert not any(stream.is_closed for stream in streams)
        before = [len(stream.token_ids) for stream in streams]
        answers = await asyncio.gather(
            *(
                client.post(
                    "/completions", json={"prompt": "x", "structured_outputs": {"json": bomb}}
                )
                for bomb in BOMBS
            )
        )
        after = [len(stream.token_ids) for stream in streams]
        assert all(now > then for now, then in zip(after, before, strict=True))
        await asyncio.gather(*followers)
    return answers


def test_grammars_that_explode_hurt_nobody(llm: LLM) -> None:
    model = llm.cluster.models[0].name
    requests = [
        completion(model, [100 + i] * 20, 400, temperature=float(i % 2), seed=i) for i in range(4)
    ]
    calm = asyncio.run(follow_all(llm.cluster.grpc_address, requests))
    streams = [Stream(request) for request in requests]
    for answer in asyncio.run(with_bombs(llm, streams)):
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("structured_outputs", "invalid_grammar")
    assert [stream.error for stream in streams] == [""] * 4
    assert [stream.token_ids for stream in streams] == [stream.token_ids for stream in calm]
