"""Names of vLLM in a running deployment: its scripts, and flags in place of a model's files."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

import pagewire
from pagewire import LLM, SamplingParams
from pagewire.config import config_from_keywords
from pagewire_shared.errors import PagewireError
from support.cells.clusters import TINY, Cluster

SCRIPTS = sorted((Path(__file__).parent / "vllm_scripts").glob("*.py"))
REFUSED = {
    "logits_processors": "logits_processors",
    "context_parallel": "decode_context_parallel_size 4",
}
"""Script -> beginning of the line that refuses it."""

TEMPLATE = "{% for message in messages %}<{{ message['content'] }}>{% endfor %}"


@pytest.fixture(scope="module")
def split_model(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model without tokenizer, and its tokenizer in another."""
    root = tmp_path_factory.mktemp("split")
    shutil.copytree(tiny_checkpoint, root / "model")
    (root / "tokenizer").mkdir()
    for path in list((root / "model").glob("tokenizer*")):
        path.rename(root / "tokenizer" / path.name)
    for path in (root / "model").glob("chat_template*"):
        path.unlink()
    return root


@pytest.fixture(scope="module")
def llm(split_model: Path) -> Iterator[LLM]:
    """A deployment with vLLM's names for all that a model's files could say."""
    with LLM(
        str(split_model / "model"),
        **{**TINY, "max_model_len": "auto", "kv_cache_memory": "256KiB"},
        tokenizer=str(split_model / "tokenizer"),
        chat_template=TEMPLATE,
        hf_overrides={"rms_norm_eps": 0.5},
        generation_config="vllm",
        override_generation_config={"temperature": 0.0},
        served_model_name=["first", "second"],
        max_logprobs=10,
        port=0,
        grpc_port=0,
    ) as made:
        yield made


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_of_vllm(
    script: Path, llm: LLM, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its keywords are those of a start; the answers come from the deployment of this module."""

    def start(model: str, **keywords: Any) -> LLM:
        config_from_keywords({"model": (model,), **keywords}, {})
        return llm

    for name in ("vllm", "vllm.sampling_params"):
        stand_in = ModuleType(name)
        vars(stand_in).update({one: getattr(pagewire, one) for one in pagewire.__all__}, LLM=start)
        monkeypatch.setitem(sys.modules, name, stand_in)
    code = compile(script.read_text(), script.name, "exec")
    if script.stem not in REFUSED:
        exec(code, {})
        assert capsys.readouterr().out
        return
    with pytest.raises(PagewireError) as refused:
        exec(code, {})
    assert refused.value.message.lower().startswith(REFUSED[script.stem])


def test_flags_take_the_place_of_files(llm: LLM) -> None:
    turns = [{"role": "user", "content": "hi"}]
    params = SamplingParams(max_tokens=4, temperature=0)
    (rendered,) = llm.chat(turns, params, use_tqdm=False)
    (written,) = llm.generate("<hi>", params, use_tqdm=False)
    assert rendered.outputs[0].token_ids == written.outputs[0].token_ids
    defaults = [llm.generate("x", use_tqdm=False)[0].outputs[0].token_ids for _ in range(2)]
    assert defaults[0] == defaults[1]


def test_overrides_change_what_is_computed(llm: LLM, cluster: Cluster) -> None:
    """The shared deployment has the same checkpoint without overrides."""
    body = {"prompt": "one two", "max_tokens": 8, "temperature": 0, "return_token_ids": True}
    own, changed = (
        httpx.post(f"{url}/v1/completions", json=body).json()["choices"][0]
        for url in (cluster.http_url, llm.cluster.http_url)
    )
    assert own["prompt_token_ids"] == changed["prompt_token_ids"]
    assert own["token_ids"] != changed["token_ids"]


def test_aliases_and_bounds_over_http(llm: LLM) -> None:
    url = f"{llm.cluster.http_url}/v1"
    models = httpx.get(f"{url}/models").json()["data"]
    assert [model["id"] for model in models] == ["first", "second"]
    # 256 KiB hold 32 blocks of 16 tokens, less than the model's context.
    assert {model["max_model_len"] for model in models} == {512}
    body = {"prompt": "x", "max_tokens": 3}
    answers = [
        httpx.post(f"{url}/completions", json={**body, "model": name}).json()
        for name in ("first", "second")
    ]
    assert {answer["model"] for answer in answers} == {"first"}
    assert answers[0]["choices"] == answers[1]["choices"]
    refused = httpx.post(f"{url}/completions", json={**body, "model": "second", "logprobs": 11})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "logprobs")
    assert httpx.post(f"{url}/completions", json={**body, "model": "third"}).status_code == 404


def test_token_ids_go_in_and_out_without_a_tokenizer(split_model: Path) -> None:
    with LLM(str(split_model / "model"), **TINY, skip_tokenizer_init=True) as bare:
        params = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True, logprobs=1)
        prompt = {"prompt_token_ids": [5, 6, 7]}
        (choice,) = bare.generate(prompt, params, use_tqdm=False)[0].outputs
        assert (len(choice.token_ids), choice.text) == (5, "")
        with pytest.raises(PagewireError, match="give token ids"):
            bare.generate("text", params, use_tqdm=False)
