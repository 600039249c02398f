"""best_of and beam search between clients and a scripted scheduler: what is asked of it, what a
client is given, and what is left of a search that was broken off."""

import pytest
from contract.frontend_clients import Reader, has_read
from contract.frontend_gateway import gateway, post
from contract.frontend_peers import attached_frontend, ids_of

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.kv.arrays import unpack_u32


def beam_request(*, n=2, **beam):
    return pb.CompleteRequest(
        text="x",
        options=pb.GenerationOptions(
            sampling=sampling_pb2.SamplingParams(max_tokens=8),
            n=n,
            beam_search=sampling_pb2.BeamSearch(**beam),
        ),
    )


async def test_best_of_over_http_gives_the_best_per_token(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", {"prompt": "x", "n": 2, "best_of": 3})
        submit = await attach.next("submit")
        assert len(submit.emitted) == 3
        assert submit.sampling.logprobs == 0
        attach.answer(submit, 1, "short", logprob=-3.0)
        attach.answer(submit, 2, "the longest of them", logprob=-1.0)
        attach.answer(submit, 0, "middle", logprob=-2.0)
        body = (await call).json()
    texts = [(choice["index"], choice["text"]) for choice in body["choices"]]
    assert texts == [(0, "the longest of them"), (1, "middle")]
    assert [choice["logprobs"] for choice in body["choices"]] == [None, None]
    # All that was generated is counted, as OpenAI does.
    assert body["usage"]["completion_tokens"] == len("short" + "the longest of them" + "middle")


async def test_prompts_with_best_of_are_numbered_by_what_is_given(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"prompt": ["a", "b"], "best_of": 2, "logprobs": 0, "max_tokens": 4}
        call = post(client, "/v1/completions", body)
        for _ in range(2):
            submit = await attach.next("submit")
            name = "a" if unpack_u32(submit.prompt_token_ids) == ids_of("a") else "b"
            attach.answer(submit, 0, f"{name}0", logprob=-2.0)
            attach.answer(submit, 1, f"{name}1", logprob=-1.0)
        choices = (await call).json()["choices"]
    assert [(choice["index"], choice["text"]) for choice in choices] == [(0, "a1"), (1, "b1")]
    assert choices[0]["logprobs"]["token_logprobs"] == [-1.0, -1.0]


async def test_best_of_over_grpc_comes_at_the_end(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        options = pb.GenerationOptions(
            sampling=sampling_pb2.SamplingParams(max_tokens=8),
            best_of=2,
            stop=["!"],
            tenant="acme",
            cache_salt="pepper",
            priority=-7,
        )
        reader = Reader(frontend, pb.CompleteRequest(text="x", options=options))
        submit = await attach.next("submit")
        assert (submit.tenant, submit.cache_salt, submit.priority) == ("acme", b"pepper", -7)
        attach.answer(submit, 0, "worse", logprob=-2.0)
        attach.tokens(submit, 0, ids_of("be"), choice=1, logprobs=[-1.0] * 2)
        await has_read(frontend, attach)
        assert reader.opened is not None
        assert not reader.ids
        attach.tokens(submit, 2, ids_of("st!"), choice=1, logprobs=[-1.0] * 3)
        assert (await attach.next("abort")).choice == 1
        await reader.end()
    assert reader.text == {0: "best"}
    assert reader.finished[0].stop_string == "!"
    assert not reader.logprobs
    assert reader.closed.usage.completion_tokens == len("worse" + "best!")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_beam_search_over_http(checkpoint, path):
    body = {"n": 3, "use_beam_search": True, "length_penalty": 0.6, "early_stopping": "never"}
    prompt = {"prompt": "x"} if path == "/v1/completions" else {}
    chat = {} if prompt else {"messages": [{"role": "user", "content": "x"}]}
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, path, {**body, **prompt, **chat, "temperature": 0, "max_tokens": 9})
        submit = await attach.next("submit")
        assert len(submit.emitted) == 3
        assert submit.generate.beam_search.length_penalty == pytest.approx(0.6)
        assert submit.generate.beam_search.early_stopping == sampling_pb2.EARLY_STOPPING_NEVER
        assert not submit.sampling.HasField("logprobs")
        for choice in (2, 0, 1):
            attach.answer(submit, choice, f"beam {choice}")
        response = await call
    assert response.status_code == 200, response.text
    choices = response.json()["choices"]
    texts = [choice.get("text") or choice["message"]["content"] for choice in choices]
    assert texts == ["beam 0", "beam 1", "beam 2"]


async def test_sampling_is_not_called_a_search(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", {"prompt": "x"})
        submit = await attach.next("submit")
        assert not submit.generate.HasField("beam_search")
        attach.say(submit, "y")
        await call


async def test_a_broken_search_is_searched_again_as_a_whole(checkpoint):
    async with attached_frontend(checkpoint, is_resuming=False) as (frontend, attach):
        reader = Reader(frontend, beam_request(early_stopping=sampling_pb2.EARLY_STOPPING_FIRST))
        submit = await attach.next("submit")
        first_search = submit.generate.beam_search
        assert first_search.early_stopping == sampling_pb2.EARLY_STOPPING_FIRST
        attach.answer(submit, 0, "first search")
        # As long as max_tokens and so a whole output: still of a search that was broken off.
        attach.tokens(submit, 0, ids_of("12345678"), choice=1)
        await has_read(frontend, attach)
        attach.end()
        attach = await attach.next_attach()
        again = await attach.next("submit")
        assert (again.request_id, again.epoch) == (submit.request_id, 1)
        assert again.generate.beam_search == first_search
        assert [(e.token_ids, e.is_finished) for e in again.emitted] == [(b"", False)] * 2
        attach.answer(again, 0, "second 0")
        attach.answer(again, 1, "second 1")
        await reader.end()
    assert reader.text == {0: "second 0", 1: "second 1"}
    assert reader.closed.usage.completion_tokens == len("second 0" + "second 1")
    assert reader.closed.timings.num_resumes == 1


async def test_a_gap_in_a_search_starts_it_again(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, beam_request())
        submit = await attach.next("submit")
        attach.answer(submit, 0, "old")
        attach.tokens(submit, 3, ids_of("gap"), choice=1)
        again = await attach.next("submit")
        assert again.epoch == 1
        assert not any(entry.token_ids or entry.is_finished for entry in again.emitted)
        attach.answer(again, 0, "new 0")
        attach.answer(again, 1, "new 1")
        await reader.end()
    assert reader.text == {0: "new 0", 1: "new 1"}


async def test_the_same_scheduler_goes_on_with_the_same_search(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, beam_request())
        submit = await attach.next("submit")
        attach.answer(submit, 0, "kept")
        await has_read(frontend, attach)
        attach.end()
        attach = await attach.next_attach()
        [held] = attach.hello.held
        assert unpack_u32(held.next_positions) == [0xFFFFFFFF, 0]
        attach.answer(wire.Submit(handle=held.handle, epoch=0), 1, "rest")
        await reader.end()
    assert reader.text == {0: "kept", 1: "rest"}


async def test_a_failed_search_shows_nothing_of_it(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", {"prompt": "x", "n": 2, "use_beam_search": True})
        submit = await attach.next("submit")
        attach.answer(submit, 0, "half")
        attach.finish(submit, 0, choice=1, reason=sampling_pb2.FINISH_REASON_FAILED)
        response = await call
    assert response.status_code >= 500
    assert "half" not in response.text
