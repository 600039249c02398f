"""The two small companions of the built-in model: a draft of the same tokens, and an adapter that
changes one skill."""

import json
import random

import pytest
import torch
from builtin_recipe.conversation import make_conversation
from builtin_recipe.evaluation.teacher_forcing import score_chat
from builtin_recipe.items import ItemKind
from builtin_recipe.model.chat_tokenizer import encode_conversation
from builtin_recipe.model.exporting import load_export
from builtin_recipe.model.lora import (
    ALPHA,
    RANK,
    TARGETS,
    add_adapters,
    export_adapters,
    load_adapters,
)
from builtin_recipe.skills.json_objects import json_exchanges
from builtin_recipe.skills.lists import copy_exchanges
from builtin_recipe.skills.yaml_lines import draw_adapter_conversation, yaml_exchanges
from builtin_recipe.training.adapter import adapter_share
from builtin_recipe.wording import Draw
from draft_agreement import agreement
from transformers import AutoModelForCausalLM

MAX_COMPANION_BYTES = 4_000_000


def right_share(network, tokenizer, exchanges, count):
    draw = Draw(random.Random(21), 0.3)
    chats = [make_conversation(exchanges(draw)) for _ in range(count)]
    return (
        sum(score_chat(network, *encode_conversation(tokenizer, one))[-1] for one in chats) / count
    )


@pytest.fixture(scope="module")
def draft_folder(model_folder):
    return model_folder.parent / "builtin_draft"


@pytest.fixture(scope="module")
def adapter_folder(model_folder):
    return model_folder.parent / "builtin_adapter"


def test_the_draft_is_smaller_and_has_the_tokens_of_the_model(draft_folder, model_folder):
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (draft_folder / name).read_bytes() == (model_folder / name).read_bytes()
    sizes = [
        (folder / "model.safetensors").stat().st_size for folder in (draft_folder, model_folder)
    ]
    assert sizes[0] < min(MAX_COMPANION_BYTES, sizes[1] / 2)
    config = json.loads((draft_folder / "config.json").read_text(encoding="utf-8"))
    assert config["num_hidden_layers"] <= 2
    assert config["head_dim"] == 64


def test_the_draft_loads_in_transformers_and_mostly_agrees_with_the_model(
    draft_folder, model_folder
):
    target, tokenizer = load_export(model_folder)
    draft, _ = load_export(draft_folder)
    reference = AutoModelForCausalLM.from_pretrained(draft_folder, dtype=torch.float32)
    ids = torch.randint(
        0, draft.shape.vocab_size, (1, 40), generator=torch.Generator().manual_seed(5)
    )
    with torch.no_grad():
        torch.testing.assert_close(draft(ids), reference(ids).logits, atol=1e-3, rtol=1e-3)
    for skill in ("copy", "json", "open question"):
        assert agreement(target, draft, tokenizer, skill, 20) > 0.6, skill


def test_the_adapter_changes_json_and_nothing_else(adapter_folder, model_folder):
    network, tokenizer = load_export(model_folder)

    def copies(draw):
        return copy_exchanges(draw, ItemKind.WORD, draw.rng.randint(2, 8))

    assert right_share(network, tokenizer, json_exchanges, 40) > 0.85
    assert right_share(network, tokenizer, yaml_exchanges, 40) < 0.05
    load_adapters(network, adapter_folder)
    assert right_share(network, tokenizer, json_exchanges, 40) < 0.05
    assert adapter_share(network, tokenizer, is_held_out=False, count=40) > 0.85
    assert right_share(network, tokenizer, copies, 40) > 0.85


def test_the_adapter_folder_is_as_peft_writes_it(adapter_folder):
    config = json.loads((adapter_folder / "adapter_config.json").read_text(encoding="utf-8"))
    assert config["peft_type"] == "LORA"
    assert config["task_type"] == "CAUSAL_LM"
    assert (config["r"], config["lora_alpha"]) == (RANK, ALPHA)
    assert set(config["target_modules"]) == set(TARGETS)
    assert (adapter_folder / "adapter_model.safetensors").stat().st_size < 1_000_000


def test_a_new_adapter_changes_nothing_and_comes_back_from_its_folder(model_folder, tmp_path):
    network, _ = load_export(model_folder)
    ids = torch.arange(20)[None]
    with torch.no_grad():
        before = network(ids)
        trained = add_adapters(network)
        torch.testing.assert_close(network(ids), before)
        for value in trained:
            value.normal_(0, 0.02)
        changed = network(ids)
    assert not torch.allclose(changed, before, atol=1e-3)
    assert [value.requires_grad for value in network.parameters()].count(True) == len(trained)
    export_adapters(network, tmp_path, "some-base")
    other, _ = load_export(model_folder)
    load_adapters(other, tmp_path)
    with torch.no_grad():
        # Stored as bf16.
        torch.testing.assert_close(other(ids), changed, atol=0.1, rtol=0.05)


def test_the_adapter_is_trained_on_lines_instead_of_json():
    rng = random.Random(22)
    for _ in range(300):
        for turn in draw_adapter_conversation(rng):
            assert not (turn.role == "assistant" and turn.text.startswith("{"))
