"""Models that are drafted for, and the proposers that draft for each."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from support.adapters.model_adapters import MadeAdapter, make_adapter
from support.checkpoints.checkpoints import make_checkpoint, write_tokenizer
from support.checkpoints.draft_heads import (
    head_config,
    knowing_head,
    make_chained,
    random_head,
    write_head,
)
from support.checkpoints.mtp_checkpoints import let_the_last_token_decide, make_mtp_checkpoint
from support.oracles.exact_requests import CHECKPOINTS, VOCAB, make_exact_checkpoint
from support.speculated.cells import PREDICTED_SHARE, PlainAnswers, SpeculatedCell

CHAINED = "chained"
"""A checkpoint whose last token alone decides the next, which a head can know."""

ADAPTED = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 16}


@dataclass(frozen=True)
class Target:
    """A model that is drafted for.

    Attributes:
        checkpoint: Of `make_exact_checkpoint`, or CHAINED, or behind "mtp " one with a layer that
            drafts and that guesses at random, or behind "known mtp " one that knows the model.
        settings: Of its worker.
        num_adapters: That its requests have.
    """

    checkpoint: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    num_adapters: int = 0


TARGETS: dict[str, Target] = {
    "qwen3": Target("qwen3"),
    "qwen3 int8": Target("qwen3", {"quantization": "int8"}),
    "llama int4": Target("llama", {"quantization": "int4"}),
    "llama over int8": Target("llama", {"kv_cache_dtype": "int8"}),
    "qwen3 with adapters": Target("qwen3", ADAPTED, num_adapters=2),
    "windows int8": Target("mistral", {"quantization": "int8"}),
    "gemma3": Target("gemma3"),
    "gpt-oss int8 over int8": Target("gpt-oss", {"quantization": "int8", "kv_cache_dtype": "int8"}),
    "experts int8": Target("qwen3-moe", {"quantization": "int8"}),
    "latents": Target("mtp deepseek-v3"),
    "experts": Target("mtp glm4-moe", {"quantization": "int8"}),
    "known experts": Target("known mtp glm4-moe"),
    "chained": Target(CHAINED),
    "chained int8": Target(CHAINED, {"quantization": "int8"}),
}

SCRIPT = "script"
PROPOSERS = (
    *("ngram", "suffix", "grammar", "prediction", SCRIPT),
    *("draft_model: itself", "draft_model: near", "draft_model: other"),
    *("eagle", "eagle3", "mtp"),
)
"""Methods; behind a colon, what drafts. A prediction needs no method of its own."""


def write_target(place: Path, target: Target) -> Path:
    """Write the checkpoint of a target with a tokenizer, and return its folder."""
    name = target.checkpoint
    if name == CHAINED:
        folder = make_checkpoint(place / name, vocab=VOCAB, layers=6)
        make_chained(folder)
    elif "mtp " in name:
        folder, tensors = make_mtp_checkpoint(place / name, name.split()[-1], with_tokenizer=True)
        if name.startswith("known"):
            let_the_last_token_decide(folder, tensors)
    else:
        folder = make_exact_checkpoint(place, name)
        if name not in CHECKPOINTS:
            write_tokenizer(folder, VOCAB)
    return folder


def write_adapters(place: Path, folder: Path, number: int) -> list[MadeAdapter]:
    """Write so many adapters of the model in `folder`."""
    return [
        make_adapter(place / f"adapter-{seed}", folder, rank=3 + 8 * seed, seed=seed, scale=1.0)
        for seed in range(number)
    ]


def proposers_of(target: Target) -> Iterator[str]:
    """Yield the proposers that can draft for a target."""
    for name in PROPOSERS:
        if name != "mtp" or "mtp" in target.checkpoint:
            yield name


def speculated_cell(plain: PlainAnswers, name: str, proposer: str, place: Path) -> SpeculatedCell:
    """Return a cell of a target whose drafts come from `proposer`, written below `place`."""
    target = TARGETS[name]
    method, _, kind = proposer.partition(": ")
    settings: dict[str, Any] = {"method": method, "num_speculative_tokens": 4}
    finders, share = None, PREDICTED_SHARE
    if proposer == "ngram":
        settings |= {"prompt_lookup_min": 1, "prompt_lookup_max": 3}
    elif proposer == "prediction":
        settings["method"], share = "grammar", 1.0
    elif proposer == SCRIPT:
        settings["method"], finders = "grammar", plain.scripts()
    elif method == "draft_model":
        settings |= _draft_model(plain, kind, place)
    elif method in ("eagle", "eagle3"):
        settings |= {"model": str(_head(target, method, plain, place)), "kv_cache_memory": "128KiB"}
    return SpeculatedCell(plain, json.dumps(settings), finders, share, f"{name} {proposer}")


def _draft_model(plain: PlainAnswers, kind: str, place: Path) -> dict[str, Any]:
    """The target itself, with other weights or in another type."""
    if kind == "other":
        folder = make_checkpoint(place / "other", vocab=VOCAB, layers=1, seed=9)
        return {"model": str(folder), "quantization": "none", "kv_cache_memory": "40KiB"}
    own = plain.settings.get("quantization", "none")
    near = "int4" if own == "none" else "none"
    quantization = own if kind == "itself" else near
    return {"model": str(plain.folder), "quantization": quantization, "kv_cache_memory": "1MiB"}


def _head(target: Target, method: str, plain: PlainAnswers, place: Path) -> Path:
    """A head that knows a chained target, or guesses at random."""
    folder, fields = place / method, {}
    if target.checkpoint == CHAINED:
        stored = load_file(plain.folder / "model.safetensors")
        return write_head(folder, head_config(method), knowing_head(method, stored))
    if method == "eagle3":
        fields = {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]}
    return write_head(folder, head_config(method, **fields), random_head(method))
