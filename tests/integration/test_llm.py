"""The offline API: results as users know them, in scripts and beside running event loops."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagewire import LLM, AsyncLLM, LLMEngine, RequestOutput, SamplingParams
from pagewire_shared.errors import InvalidRequestError, StartupError, UnavailableError
from support.cells.clusters import TINY
from support.processes.processes import is_running, wait_until

PROMPTS = ["one", "two three", "four five six " * 10]


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: Path) -> Iterator[LLM]:
    with LLM(str(tiny_checkpoint), seed=7, **TINY) as made:
        yield made


def greedy(num_tokens: int, **more: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True, **more)


def test_results_have_the_fields_that_users_know(llm: LLM) -> None:
    (result,) = llm.generate("one two", greedy(6), use_tqdm=False)
    assert isinstance(result, RequestOutput)
    assert result.prompt == "one two"
    assert result.prompt_token_ids
    assert result.finished
    assert result.request_id
    assert result.metrics is not None
    assert 0 < result.metrics.time_to_first_token_seconds <= result.metrics.total_seconds
    (choice,) = result.outputs
    assert (choice.index, choice.finish_reason, choice.stop_reason) == (0, "length", None)
    assert len(choice.token_ids) == 6
    assert choice.text
    assert choice.logprobs is None
    assert choice.cumulative_logprob is None


def test_results_are_in_the_order_of_the_prompts(llm: LLM) -> None:
    params = [greedy(30), greedy(2), greedy(9)]
    results = llm.generate(PROMPTS, params, use_tqdm=False)
    assert [result.prompt for result in results] == PROMPTS
    assert [len(result.outputs[0].token_ids) for result in results] == [30, 2, 9]


def test_many_prompts_at_once_give_what_each_gives_alone(llm: LLM) -> None:
    prompts = [f"{index} {'x' * (index % 17)}" for index in range(48)]
    together = llm.generate(prompts, greedy(12), use_tqdm=False)
    alone = [llm.generate(prompt, greedy(12), use_tqdm=False)[0] for prompt in prompts[:6]]
    assert [r.outputs[0].token_ids for r in together[:6]] == [r.outputs[0].token_ids for r in alone]


def test_token_ids_are_taken_as_they_are(llm: LLM) -> None:
    (text,) = llm.generate("one two", greedy(8), use_tqdm=False)
    prompts = [{"prompt_token_ids": text.prompt_token_ids}, {"prompt": "one two"}]
    ids, mapping = llm.generate(prompts, greedy(8), use_tqdm=False)
    assert ids.prompt is None
    assert ids.prompt_token_ids == text.prompt_token_ids
    assert ids.outputs == mapping.outputs == text.outputs


def test_defaults_are_16_tokens(llm: LLM) -> None:
    (result,) = llm.generate(["one"], use_tqdm=False)
    assert len(result.outputs[0].token_ids) <= 16
    (greedily,) = llm.generate(["one"], SamplingParams(ignore_eos=True), use_tqdm=False)
    assert len(greedily.outputs[0].token_ids) == 16


def test_choices_logprobs_and_seeds(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=5, max_tokens=5, logprobs=2, ignore_eos=True)
    first, second = (llm.generate("one", params, use_tqdm=False)[0] for _ in range(2))
    assert first.outputs == second.outputs
    assert [choice.index for choice in first.outputs] == [0, 1, 2]
    assert len({tuple(choice.token_ids) for choice in first.outputs}) == 3
    for choice in first.outputs:
        assert choice.logprobs is not None
        chosen = [
            entry[token] for entry, token in zip(choice.logprobs, choice.token_ids, strict=True)
        ]
        assert all(2 <= len(entry) <= 3 for entry in choice.logprobs)
        assert choice.cumulative_logprob == pytest.approx(sum(c.logprob for c in chosen))


def test_stop_strings_and_stop_tokens(llm: LLM) -> None:
    (free,) = llm.generate("one", greedy(12), use_tqdm=False)
    ids, text = free.outputs[0].token_ids, free.outputs[0].text
    (by_id,) = llm.generate("one", greedy(12, stop_token_ids=[ids[4]]), use_tqdm=False)
    choice = by_id.outputs[0]
    end = ids.index(ids[4]) + 1
    assert choice.token_ids == ids[:end]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", ids[4])
    stop = text[3:5]
    (by_text,) = llm.generate("one", greedy(12, stop=[stop]), use_tqdm=False)
    choice = by_text.outputs[0]
    assert choice.text == text[: text.index(stop)]
    assert (choice.finish_reason, choice.stop_reason) == ("stop", stop)


def test_chat(llm: LLM) -> None:
    turns = [{"role": "user", "content": "hello"}]
    (one,) = llm.chat(turns, greedy(4), use_tqdm=False)
    assert one.prompt is not None
    assert "hello" in one.prompt
    both = llm.chat([turns, [*turns, {"role": "assistant", "content": "x"}]], greedy(4))
    assert both[0].outputs == one.outputs
    assert both[0].prompt_token_ids != both[1].prompt_token_ids


def test_chat_with_a_forced_tool_call(llm: LLM) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Lima"]}}}
    schema |= {"required": ["city"], "additionalProperties": False}
    function = {"name": "get_weather", "parameters": schema}
    (result,) = llm.chat(
        [{"role": "user", "content": "hello"}],
        SamplingParams(temperature=0.0, max_tokens=400),
        use_tqdm=False,
        tools=[{"type": "function", "function": function}],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
        parallel_tool_calls=False,
    )
    [output] = result.outputs
    [call] = output.tool_calls
    assert (call.name, output.finish_reason) == ("get_weather", "tool_calls")
    assert json.loads(call.arguments)["city"] in ("Oslo", "Lima")
    assert "get_weather" not in output.text


def test_progress_is_shown_when_wanted(llm: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    llm.generate(["a", "b"], greedy(1), use_tqdm=True)
    assert "Processed prompts" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("prompts", "params", "field"),
    [
        ([""], None, "prompt"),
        (["x" * 5000], None, "prompt"),
        (["a"], SamplingParams(max_tokens=100_000), "max_tokens"),
        ([{"text": "a"}], None, "prompts"),
        (["a", "b"], [SamplingParams()], "sampling_params"),
        ([{"prompt_token_ids": [-1]}], None, "prompt"),
    ],
)
def test_bad_requests_name_the_field(
    llm: LLM, prompts: list[object], params: object, field: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        llm.generate(prompts, params, use_tqdm=False)
    assert caught.value.field == field


async def test_inside_a_running_event_loop(llm: LLM) -> None:
    """As in a notebook, where the cell runs on a loop of its own."""
    assert asyncio.get_running_loop().is_running()
    (result,) = llm.generate("one", greedy(3), use_tqdm=False)
    assert len(result.outputs[0].token_ids) == 3


async def test_a_whole_life_inside_a_running_event_loop(tiny_checkpoint: Path) -> None:
    with LLM(str(tiny_checkpoint), **TINY) as own:
        assert own.generate("one", greedy(3), use_tqdm=False)[0].finished
        pids = list(own.cluster.pids().values())
        assert len(pids) == 4
    assert [pid for pid in pids if is_running(pid)] == []
    own.close()
    with pytest.raises(UnavailableError, match="closed"):
        own.generate("one", use_tqdm=False)


SCRIPT = """
import sys
from pagewire import LLM, SamplingParams

llm = LLM(sys.argv[1], dtype="float32", kv_cache_memory="16MiB", block_size=8)
results = llm.generate(["one", "two"], SamplingParams(temperature=0, max_tokens=4))
for result in results:
    print(result.prompt, len(result.outputs[0].token_ids))
print(*llm.cluster.pids().values())
"""


def test_a_script_without_a_main_guard_and_without_close(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    script = tmp_path / "offline.py"
    script.write_text(SCRIPT)
    result = subprocess.run(
        [sys.executable, str(script), str(tiny_checkpoint)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    first, second, pids = result.stdout.splitlines()
    assert (first, second) == ("one 4", "two 4")
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids.split()), 5, "children gone")


def test_wrong_keywords_and_values_start_nothing(tiny_checkpoint: Path) -> None:
    with pytest.raises(TypeError, match="did you mean max_model_len"):
        LLM(str(tiny_checkpoint), max_model_length=8)
    with pytest.raises(StartupError, match="kv_cache_memory"):
        LLM(str(tiny_checkpoint), kv_cache_memory="many")
    with pytest.raises(StartupError, match="does not exist"):
        LLM("./no-such-model")


def test_as_many_prompts_are_sent_as_all_workers_keep_busy(tiny_checkpoint: Path) -> None:
    settings = {**TINY, "num_workers": 2, "max_num_seqs": 200, "max_num_batched_tokens": 512}
    with LLM(str(tiny_checkpoint), **settings) as llm:
        assert llm._concurrency() == 800


def test_the_names_of_old_scripts(llm: LLM) -> None:
    (text,) = llm.generate("one two", greedy(4), use_tqdm=False)
    ids = text.prompt_token_ids
    (same,) = llm.generate(sampling_params=greedy(4), prompt_token_ids=ids, use_tqdm=False)
    assert same.outputs[0].token_ids == text.outputs[0].token_ids
    both = llm.generate(["one two"] * 2, greedy(4), use_tqdm=False, priority=[5, -5])
    assert [one.outputs[0].text for one in both] == [text.outputs[0].text] * 2
    with pytest.raises(InvalidRequestError, match="priority: 1 for 2 prompts"):
        llm.generate(["a", "b"], greedy(1), use_tqdm=False, priority=[1])
    with pytest.raises(InvalidRequestError, match="priority"):
        llm.generate("a", greedy(1), use_tqdm=False, priority=1000)
    with pytest.raises(InvalidRequestError, match="lora_request: it is no LoRARequest"):
        llm.generate("a", greedy(1), lora_request=object())  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="apply_model: no function is sent"):
        llm.apply_model(len)
    with pytest.raises(AttributeError):
        llm.no_such_method()
    assert llm.get_tokenizer()("one two").input_ids == ids
    vectors = llm.encode(["one", "one"], use_tqdm=False)
    assert vectors[0].outputs.embedding == vectors[1].outputs.embedding
    assert llm.score("one", ["one", "two"])[0] == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(InvalidRequestError, match="class"):
        llm.classify("one")
    assert llm.llm_engine is llm
    assert repr(llm).startswith("LLM(model=")
    assert llm.reset_prefix_cache() >= 0


def test_an_async_model_streams_and_aborts(llm: LLM) -> None:
    model = AsyncLLM.__new__(AsyncLLM)
    model.llm, model._client, model._running = llm, None, {}

    async def use() -> tuple[list[RequestOutput], list[RequestOutput]]:
        whole = [out async for out in model.generate("one two", greedy(12), "a")]
        cut = []
        async for out in model.generate("one two", greedy(60), "b"):
            cut.append(out)
            if out.outputs[0].token_ids:
                await model.abort("b")
        with pytest.raises(InvalidRequestError, match="prompts"):
            await anext(model.generate({"x": 1}, greedy(1)))  # type: ignore[arg-type]
        await model.check_health()
        await (await model._connected()).close()
        return whole, cut

    whole, cut = asyncio.run(use())
    (expected,) = llm.generate("one two", greedy(12), use_tqdm=False)
    assert whole[-1].finished
    assert {out.request_id for out in whole} == {"a"}
    assert whole[-1].outputs[0].text == expected.outputs[0].text
    lengths = [len(out.outputs[0].token_ids) for out in whole]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) > 3
    assert not cut[-1].finished
    assert model.is_running
    assert not model.errored


def test_an_engine_steps_through_requests(llm: LLM) -> None:
    engine = LLMEngine.__new__(LLMEngine)
    engine.llm, engine._running, engine._newest = llm, {}, {}
    engine._changed = threading.Condition()
    engine.add_request("long", "one two", greedy(60))
    engine.add_request("short", {"prompt": "three"}, greedy(5), priority=-5)
    with pytest.raises(InvalidRequestError, match="'long' runs"):
        engine.add_request("long", "x", greedy(1))
    assert engine.get_num_unfinished_requests() == 2
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                finished[output.request_id] = output
                engine.abort_request(["long", "none"])
    assert engine.step() == []
    assert list(finished) == ["short"]
    (expected,) = llm.generate("three", greedy(5), use_tqdm=False)
    assert finished["short"].outputs[0].token_ids == expected.outputs[0].token_ids
    # An error costs no output of another request, and a name in use again gets nothing of before.
    engine.add_request("bad", "x" * 100_000, greedy(1))
    engine.add_request("short", "three", greedy(5))
    results: list[RequestOutput] = []
    failures = 0
    while engine.has_unfinished_requests():
        try:
            results += engine.step()
        except InvalidRequestError:
            failures += 1
    assert failures == 1
    assert results[-1].outputs[0].token_ids == expected.outputs[0].token_ids
