"""A deployment whose model knows nothing but has a real tokenizer, and what guided outputs are
checked with."""

import shutil
from pathlib import Path
from typing import Any

from llguidance import LLTokenizer

import pagewire
from pagewire import LLM
from pagewire.offline.outputs import CompletionOutput
from pagewire_shared.identity.model_files import ModelFiles
from pagewire_shared.sampling.grammar_source import compile_grammar
from pagewire_worker.grammars.tokenizer import read_grammar_tokenizer
from support.checkpoints.checkpoints import make_checkpoint
from support.oracles.bounded_languages import accepts
from support.oracles.grammars import Language
from support.processes.processes import free_port

VOCAB = 3072
TEXT_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "chat_template.jinja",
)
SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "max_num_seqs": 64,
    "max_model_len": 512,
    "kv_cache_memory": "64MiB",
}


def make_guided_checkpoint(folder: Path, *, num_added: int = 0) -> Path:
    """Write random weights with the tokenizer of the built-in model, and room for `num_added` more
    tokens."""
    make_checkpoint(folder, vocab=VOCAB + num_added, with_tokenizer=False)
    builtin = Path(pagewire.__file__).parent / "builtin_model"
    for name in TEXT_FILES:
        shutil.copy(builtin / name, folder / name)
    return folder


def start_guided_llm(folder: Path) -> LLM:
    """Start processes that also listen on ports."""
    return LLM(
        str(make_guided_checkpoint(folder)), port=free_port(), grpc_port=free_port(), **SETTINGS
    )


class Judge:
    """Says whether outputs are in a language, or on the way to it."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer: LLTokenizer = read_grammar_tokenizer(ModelFiles.of_folder(folder), VOCAB)

    def is_prefix(self, language: Language, token_ids: list[int]) -> bool:
        """Return whether a new matcher takes all of `token_ids`."""
        matcher = compile_grammar(self._tokenizer, language.params)
        return all(matcher.consume_token(token_id) for token_id in token_ids)

    def is_complete(self, language: Language, output: CompletionOutput) -> bool:
        """Return whether `output` ended by itself, in the language."""
        return output.finish_reason == "stop" and accepts(language, output.text)
