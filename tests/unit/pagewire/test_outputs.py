"""From streams to results, and from what users pass to requests."""

import pytest

from pagewire.client.client_convert import chat_request, complete_request, options_message
from pagewire.client.events import (
    Closed,
    Delta,
    Finished,
    Message,
    Opened,
    PromptLogprobs,
    Timings,
    TokenLogprob,
    Usage,
)
from pagewire.offline.outputs import Logprob, OutputCollector
from pagewire.offline.prompts import SeedSource, chat_requests, prompt_requests
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams

OPENED = Opened("ab", "m", (1, 2), 7)
CLOSED = Closed(Usage(2, 4, 1, {"memory": 1}), Timings(0.1, 0.5, 1))


def test_interleaved_choices_are_collected_separately() -> None:
    collector = OutputCollector(2, has_logprobs=False)
    for event in (
        OPENED,
        Delta(1, 0, [5], "x"),
        Delta(0, 0, [6, 7], ""),
        Finished(1, "length", "y", None),
        Delta(0, 2, [8], "b"),
        Finished(0, "stop", "", 8),
        CLOSED,
    ):
        collector.add(event)
    result = collector.result("p")
    first, second = result.outputs
    assert (first.text, first.token_ids, first.stop_reason) == ("b", [6, 7, 8], 8)
    assert (second.text, second.token_ids, second.finish_reason) == ("xy", [5], "length")
    assert result.prompt_token_ids == [1, 2]
    assert result.finished
    assert result.metrics is not None
    assert (result.metrics.num_resumes, result.metrics.num_cached_tokens) == (1, 1)
    assert result.metrics.num_cached_tokens_by_tier == {"memory": 1}


def test_logprobs_by_token_id() -> None:
    collector = OutputCollector(1, has_logprobs=True)
    entries = (
        TokenLogprob(5, -0.5, ((5, -0.5), (9, -1.0))),
        TokenLogprob(6, -3.0, ((9, -0.1),)),
    )
    collector.add(Delta(0, 0, [5, 6], "ab", entries))
    (choice,) = collector.result(None).outputs
    assert choice.cumulative_logprob == -3.5
    assert choice.logprobs == [
        {5: Logprob(-0.5, 1), 9: Logprob(-1.0, 2)},
        {9: Logprob(-0.1, 1), 6: Logprob(-3.0, None)},
    ]


def test_log_probabilities_have_rank_and_text() -> None:
    collector = OutputCollector(1, has_logprobs=True)
    entries = (TokenLogprob(6, -3.0, ((9, -0.1),), 17), TokenLogprob(9, -0.1, ((9, -0.1),), 1))
    collector.add(Delta(0, 0, [6, 9], "ab", entries))
    assert collector.named_token_ids() == {6, 9}
    (choice,) = collector.result(None, texts={6: "a", 9: "b"}).outputs
    assert choice.logprobs == [
        {9: Logprob(-0.1, 1, "b"), 6: Logprob(-3.0, 17, "a")},
        {9: Logprob(-0.1, 1, "b")},
    ]


def test_logprobs_of_the_prompt_begin_with_none() -> None:
    collector = OutputCollector(1, has_logprobs=False, has_prompt_logprobs=True)
    collector.add(OPENED)
    collector.add(PromptLogprobs(1, (TokenLogprob(2, -0.5, ((3, -0.2),), 2),)))
    collector.add(PromptLogprobs(2, (TokenLogprob(4, -0.75, (), 3),)))
    assert collector.named_token_ids() == {2, 3, 4}
    result = collector.result(None, texts={2: "b"})
    assert result.prompt_logprobs == [
        None,
        {3: Logprob(-0.2, 1), 2: Logprob(-0.5, 2, "b")},
        {4: Logprob(-0.75, 3)},
    ]
    assert result.outputs[0].logprobs is None
    with pytest.raises(AssertionError, match="gap"):
        collector.add(PromptLogprobs(5, ()))


def test_a_prompt_of_one_token_has_no_predicted_token() -> None:
    collector = OutputCollector(1, has_logprobs=False, has_prompt_logprobs=True)
    assert collector.result(None).prompt_logprobs == [None]
    assert OutputCollector(1, has_logprobs=False).result(None).prompt_logprobs is None


def test_an_open_stream_is_not_finished() -> None:
    collector = OutputCollector(1, has_logprobs=False)
    collector.add(OPENED)
    result = collector.result(None)
    assert not result.finished
    assert result.outputs[0].finish_reason is None


def test_a_gap_in_a_stream_is_an_error() -> None:
    collector = OutputCollector(1, has_logprobs=False)
    with pytest.raises(AssertionError, match="gap"):
        collector.add(Delta(0, 3, [1], "x"))


def test_a_prompt_or_a_list_of_prompts_is_accepted() -> None:
    params = SamplingParams()
    assert [r.source for r in prompt_requests("a", params)] == ["a"]
    assert [r.source for r in prompt_requests({"prompt_token_ids": (1, 2)}, None)] == [[1, 2]]
    mixed = prompt_requests(["a", {"prompt": "b"}, {"prompt_token_ids": [3]}], params)
    assert [r.source for r in mixed] == ["a", "b", [3]]
    assert {r.params for r in mixed} == {params}
    assert prompt_requests([], None) == []


def test_one_conversation_or_a_list_is_accepted() -> None:
    turn = {"role": "user", "content": "x"}
    assert len(chat_requests([turn, turn], None)) == 1
    assert len(chat_requests([[turn], [turn]], None)) == 2


def test_seeds_repeat_and_never_replace_a_given_seed() -> None:
    plain = SamplingParams()
    first, second = (SeedSource(3) for _ in range(2))
    assert [first.seeded(plain) for _ in range(3)] == [second.seeded(plain) for _ in range(3)]
    assert first.seeded(plain) != first.seeded(plain)
    assert first.seeded(plain.with_(seed=9)) == plain.with_(seed=9)
    assert SeedSource(None).seeded(None) is None
    seeded = first.seeded(None)
    assert isinstance(seeded, dict)
    assert seeded["max_tokens"] == 16


def test_options_that_are_not_given_are_not_sent() -> None:
    sampling = options_message({"temperature": 0.5, "stop": "x"}).sampling
    assert [present.name for present, _ in sampling.ListFields()] == ["temperature"]
    assert options_message({"temperature": 0.5, "stop": "x"}).stop == ["x"]
    nothing = options_message(None).sampling
    assert [present.name for present, _ in nothing.ListFields()] == ["max_tokens"]
    everything = options_message(SamplingParams(n=2, seed=4))
    assert everything.sampling.temperature == 1.0
    assert (everything.n, everything.sampling.seed) == (2, 4)


def test_values_that_the_wire_cannot_carry_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="prompt"):
        complete_request([-1], None, None)
    with pytest.raises(InvalidRequestError, match="role 'robot'"):
        chat_request([{"role": "robot", "content": "x"}], None, {})
    with pytest.raises(InvalidRequestError, match="role, content"):
        chat_request([{"text": "x"}], None, {})
    with pytest.raises(InvalidRequestError, match="content must be a text"):
        chat_request([{"role": "user", "content": [1]}], None, {})
    image = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "x"}}]
    with pytest.raises(InvalidRequestError, match="messages: images are not supported; only text"):
        chat_request([{"role": "user", "content": image}], None, {})
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    said = chat_request([{"role": "user", "content": texts}], None, {})
    assert said.messages[0].content == "ab"
    named = {"model": "m", "add_generation_prompt": False}
    request = chat_request([Message("user", "x", "me")], None, named)
    assert (request.model, request.messages[0].name) == ("m", "me")
    assert request.add_generation_prompt is False
    plain = chat_request([Message("user", "x")], None, {})
    assert not plain.HasField("add_generation_prompt")
    more = {"continue_final_message": True, "chat_template_kwargs": {"depth": 2, "on": True}}
    request = chat_request([Message("user", "x")], None, more)
    assert request.continue_final_message
    assert dict(request.template_arguments) == {"depth": 2, "on": True}
    with pytest.raises(InvalidRequestError, match="chat_template_kwargs"):
        chat_request([], None, {"chat_template_kwargs": {"x": object()}})
    with pytest.raises(TypeError, match="'colour'"):
        chat_request([], None, {"colour": "red"})


def test_chat_options_are_sent_with_each_conversation() -> None:
    turn = {"role": "user", "content": "x"}
    requests = chat_requests([[turn], [turn]], None, continue_final_message=True)
    assert [request.chat_options for request in requests] == [{"continue_final_message": True}] * 2
