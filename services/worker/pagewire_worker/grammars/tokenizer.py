"""Reads the tokenizer of a model folder for grammars.

End-of-sequence ids follow the rule of the frontend, which ends sequences: generation_config.json,
else config.json, and the token that tokenizer_config.json names.
"""

import json
from pathlib import Path
from typing import Any

from llguidance import LLTokenizer
from tokenizers import Tokenizer

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.model_files import ModelFiles, overridden
from pagewire_shared.sampling.grammar_source import CODE, load_grammar_tokenizer
from pagewire_shared.sampling.structured_outputs import FIELD


def read_grammar_tokenizer(files: ModelFiles, vocab_size: int) -> LLTokenizer:
    """Return the tokenizer of a model for a model of `vocab_size` logits.

    Raises:
        InvalidRequestError: The model has no tokenizer that grammars could use.
    """
    try:
        tokenizer = _read_tokenizer(files.tokenizer_folder)
    except Exception as error:  # both libraries raise Exception itself for an invalid file
        raise _no_tokenizer() from error
    return load_grammar_tokenizer(
        tokenizer.to_str(), vocab_size, read_eos_token_ids(files, tokenizer)
    )


def read_eos_token_ids(files: ModelFiles, tokenizer: Tokenizer) -> list[int]:
    """Return all ids that end an output, each once."""
    ids = _as_ids(_read_json(files.folder / "generation_config.json").get("eos_token_id"))
    config = overridden(_read_json(files.folder / "config.json"), files.overrides)
    ids = ids or _as_ids(config.get("eos_token_id"))
    token = _read_json(files.tokenizer_folder / "tokenizer_config.json").get("eos_token")
    # An AddedToken in full, or its content alone.
    content = token.get("content") if isinstance(token, dict) else token
    token_id = tokenizer.token_to_id(content) if isinstance(content, str) else None
    if token_id is not None:
        ids.append(token_id)
    return list(dict.fromkeys(ids))


def _read_tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if path.is_file():
        tokenizer = Tokenizer.from_buffer(path.read_bytes())
    else:
        from transformers import AutoTokenizer

        built = getattr(AutoTokenizer.from_pretrained(folder), "backend_tokenizer", None)
        if not isinstance(built, Tokenizer):
            raise _no_tokenizer()
        tokenizer = built
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _no_tokenizer() -> InvalidRequestError:
    return InvalidRequestError(
        "this model has no tokenizer for structured outputs", field=FIELD, code=CODE
    )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    data = json.loads(path.read_text())
    return data if isinstance(data, dict) else {}


def _as_ids(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool)]
