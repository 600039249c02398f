"""Compiling beside the steps, and the tokenizer of a model folder."""

import asyncio
import json
import logging
import threading
from dataclasses import dataclass, field

import pytest

from pagewire_shared.errors import InternalError, InvalidRequestError
from pagewire_shared.identity.model_files import ModelFiles
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from pagewire_worker.grammars import compiler as grammar_compiler
from pagewire_worker.grammars.compiled import CompiledGrammars
from pagewire_worker.grammars.compiler import GrammarCompiler
from pagewire_worker.grammars.tokenizer import read_grammar_tokenizer
from support.checkpoints.checkpoints import write_tokenizer
from support.source_tree import ROOT

MODEL = ROOT / "pagewire" / "builtin_model"
VOCAB = 3072
AB, CD = Params(choice=("ab",)), Params(choice=("cd",))


@pytest.fixture
def compiled():
    return CompiledGrammars()


@pytest.fixture
def compiler(compiled):
    return GrammarCompiler(ModelFiles.of_folder(MODEL), VOCAB, compiled)


@dataclass
class Gate:
    """Holds compiling threads until it is opened."""

    opened: threading.Event = field(default_factory=threading.Event)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def compile(self, params):
        self.entered.release()
        assert self.opened.wait(20)
        return params.text


@pytest.fixture
def gate(monkeypatch):
    made = Gate()
    monkeypatch.setattr(GrammarCompiler, "_compile", lambda self, params: made.compile(params))
    yield made
    made.opened.set()


async def entered(gate):
    assert await asyncio.to_thread(gate.entered.acquire, timeout=20)


async def test_a_grammar_is_there_until_it_is_released(compiler, compiled):
    await compiler.compile(AB.digest, AB)
    await compiler.compile(CD.digest, CD)
    compiled.release([AB.digest, b"unknown"])
    assert compiled.find(AB.digest) is None
    assert compiled.find(CD.digest) is not None
    compiler.clear()
    assert len(compiled) == 0


async def test_what_cannot_be_compiled_is_not_held(compiler, compiled):
    bad = Params(json={"type": "strung"})
    with pytest.raises(InvalidRequestError, match="Invalid type: strung"):
        await compiler.compile(bad.digest, bad)
    assert len(compiled) == 0


async def test_the_event_loop_goes_on_while_two_compile_and_others_wait(compiler, compiled, gate):
    tasks = [
        asyncio.create_task(compiler.compile(bytes([number]) * 16, Params(choice=(str(number),))))
        for number in range(4)
    ]
    for _ in range(grammar_compiler.NUM_THREADS):
        await entered(gate)
    await asyncio.sleep(0.05)
    assert not gate.entered.acquire(blocking=False)
    assert len(compiled) == 0
    gate.opened.set()
    await asyncio.gather(*tasks)
    assert len(compiled) == 4
    assert [thread.daemon for thread in threading.enumerate() if "grammar-" in thread.name]


async def test_what_compiles_for_an_attach_that_is_over_is_dropped(compiler, compiled, gate):
    task = asyncio.create_task(compiler.compile(AB.digest, AB))
    await entered(gate)
    compiler.clear()
    gate.opened.set()
    await task
    assert len(compiled) == 0


async def test_a_grammar_that_takes_too_long_is_given_up(compiled, gate):
    compiler = GrammarCompiler(ModelFiles.of_folder(MODEL), VOCAB, compiled, limit_seconds=0.05)
    with pytest.raises(InvalidRequestError, match=r"took more than 0\.05 s"):
        await compiler.compile(AB.digest, AB)
    gate.opened.set()
    await asyncio.sleep(0.05)
    assert len(compiled) == 0


async def test_a_bug_in_compiling_is_an_internal_error_and_ends_no_thread(
    compiler, compiled, monkeypatch, caplog
):
    def fail(self, params):
        raise RuntimeError("oh")

    with monkeypatch.context() as patch:
        patch.setattr(GrammarCompiler, "_compile", fail)
        for _ in range(grammar_compiler.NUM_THREADS + 1):
            with (
                caplog.at_level(logging.CRITICAL),
                pytest.raises(InternalError, match="RuntimeError: oh"),
            ):
                await compiler.compile(AB.digest, AB)
    await compiler.compile(AB.digest, AB)
    assert len(compiled) == 1


def write_config(folder, name, **content):
    (folder / name).write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("generation", "config", "token", "expected"),
    [
        ([2, 1], 0, None, [2, 1]),
        (1, 0, None, [1]),
        (None, 0, None, [0]),
        (None, None, "<|im_end|>", [2]),
        (1, None, "<|im_end|>", [1, 2]),
        (2, None, {"content": "<|im_start|>"}, [2, 1]),
        (True, [1, 700], None, [1]),
        (None, None, "no such token", None),
    ],
)
def test_all_ids_that_end_an_output(tmp_path, generation, config, token, expected):
    write_tokenizer(tmp_path, 259)
    write_config(tmp_path, "generation_config.json", eos_token_id=generation)
    write_config(tmp_path, "config.json", eos_token_id=config)
    write_config(tmp_path, "tokenizer_config.json", eos_token=token)
    tokenizer = read_grammar_tokenizer(ModelFiles.of_folder(tmp_path), 300)
    assert tokenizer.vocab_size == 300
    if expected is not None:
        assert sorted(tokenizer.eos_tokens) == sorted(expected)


def test_a_folder_without_a_fast_tokenizer(tmp_path):
    write_config(tmp_path, "config.json", model_type="llama", vocab_size=259)
    for content in (None, "{}"):
        if content is not None:
            (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(InvalidRequestError, match="no tokenizer for structured outputs"):
            read_grammar_tokenizer(ModelFiles.of_folder(tmp_path), 259)


def test_a_tokenizer_that_transformers_builds_of_other_files(tmp_path):
    write_tokenizer(tmp_path, 300)
    path = tmp_path / "tokenizer.json"
    model = json.loads(path.read_text())["model"]
    path.unlink()
    write_config(tmp_path, "vocab.json", **model["vocab"])
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    write_config(
        tmp_path, "tokenizer_config.json", tokenizer_class="GPT2Tokenizer", eos_token="<|im_end|>"
    )
    write_config(tmp_path, "config.json", model_type="gpt2", vocab_size=300, eos_token_id=1)
    tokenizer = read_grammar_tokenizer(ModelFiles.of_folder(tmp_path), 310)
    assert (tokenizer.vocab_size, sorted(tokenizer.eos_tokens)) == (310, [1, 2])
    assert tokenizer.decode_str(tokenizer.tokenize_str("the ü")) == "the ü"
