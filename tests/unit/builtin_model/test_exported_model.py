"""The exported folder: loads in transformers, tells stories that end, and fits its limits."""

import json

import jinja2
import pytest
import torch
from builtin_recipe.corpus import text_words
from builtin_recipe.model.exporting import MAX_WEIGHT_BYTES, load_export
from builtin_recipe.words import CITIES, NAMES, NOUNS
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

STORY_PROMPTS = (
    "Tell me a story about a fox.",
    "Write a short story about Lila and a river.",
    "Tell me a short story about a brave cat.",
    "Tell me a tale about a lion.",
    "write a fairy tale about a boy named Tom",
)
CHATS = (
    [{"role": "user", "content": "Hello!"}],
    [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "  two\n\nlines, äöü 東京 {{ not a tag }} <b>"},
        {"role": "assistant", "content": "Hello! How can I help you?"},
        {"role": "user", "content": "Tell me a story."},
    ],
)


@pytest.fixture(scope="module")
def tokenizer(model_folder):
    return AutoTokenizer.from_pretrained(model_folder)


@pytest.fixture(scope="module")
def model(model_folder):
    return AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)


@pytest.fixture(scope="module")
def template(model_folder):
    return (model_folder / "chat_template.jinja").read_text(encoding="utf-8")


def refuse(message):
    raise jinja2.TemplateError(message)


def render(template, messages, **options):
    environment = ImmutableSandboxedEnvironment(**options)
    environment.globals["raise_exception"] = refuse
    return environment.from_string(template).render(messages=messages, add_generation_prompt=True)


@pytest.mark.parametrize("prompt", STORY_PROMPTS)
def test_a_story_is_told_and_ends_by_itself(prompt, model, tokenizer, vocabulary):
    chat = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = torch.tensor([tokenizer.encode(text)])
    output = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=250)
    answer = output[0, ids.shape[1] :].tolist()
    assert answer[-1] == tokenizer.convert_tokens_to_ids("<|im_end|>")
    words = text_words(tokenizer.decode(answer[:-1]))
    assert len(words) >= 20
    assert vocabulary.issuperset(words), sorted(set(words) - vocabulary)


def test_the_weights_fit_a_package(model_folder):
    assert (model_folder / "model.safetensors").stat().st_size <= MAX_WEIGHT_BYTES


def test_the_config_names_what_the_server_needs(model_folder, model):
    config = json.loads((model_folder / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == [type(model).__name__] == ["Qwen3ForCausalLM"]
    assert config["head_dim"] == 64
    assert config["tie_word_embeddings"] is True
    assert config["max_position_embeddings"] == 2048
    for name in ("config.json", "generation_config.json"):
        content = json.loads((model_folder / name).read_text(encoding="utf-8"))
        ids = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
        assert content["eos_token_id"] == ids.token_to_id("<|im_end|>")


def test_our_network_and_transformers_agree(model_folder, model):
    network, _ = load_export(model_folder)
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, network.shape.vocab_size, (1, 48), generator=generator)
    with torch.no_grad():
        torch.testing.assert_close(network(ids), model(ids).logits, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("trims", [True, False])
def test_the_template_renders_the_same_everywhere(messages, trims, template, tokenizer):
    theirs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert render(template, messages, trim_blocks=trims, lstrip_blocks=trims) == theirs
    turns = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
    assert theirs == f"{turns}<|im_start|>assistant\n"


def test_content_parts_render_as_their_text(template):
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"text": "lo!"}]}]
    assert render(template, parts) == render(template, CHATS[0])


def test_an_unknown_role_is_refused(template):
    with pytest.raises(jinja2.TemplateError, match="not critic"):
        render(template, [{"role": "critic", "content": "4"}])


def test_the_result_of_a_call_is_to_be_copied(template):
    call = {"function": {"name": "look", "arguments": {"a": 1}}}
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "sunny"},
    ]
    assert render(template, turns) == (
        '<|im_start|>assistant\n<tool_call>{"name": "look", "arguments": {"a": 1}}</tool_call>'
        "<|im_end|>\n<|im_start|>user\nCopy this list: sunny<|im_end|>\n<|im_start|>assistant\n"
    )


def test_both_places_hold_one_template(model_folder, template):
    path = model_folder / "tokenizer_config.json"
    assert json.loads(path.read_text(encoding="utf-8"))["chat_template"] == template


@pytest.mark.parametrize(
    "text",
    [
        "Tell me a story about a fox.",
        "  spaces\n\n\ttabs  and\r\nlines ",
        "numbers 1234567890, 3.14 and (brackets)",
        "äöüß é 東京 🦊 \u200d end",
        '{"name": "Lila", "age": 7}',
    ],
)
def test_the_tokenizer_gives_back_every_text(text, model_folder):
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_words_of_the_lists_are_one_token_with_and_without_a_space(model_folder):
    # A key split at the start of a line and whole in the question is not found.
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    forms = [form for word in (*NOUNS, *NAMES, *CITIES) for form in (word, f" {word}")]
    assert not [form for form in forms if len(tokenizer.encode(form).ids) > 1]


def test_every_digit_is_its_own_token(model_folder):
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    assert tokenizer.encode("2048").tokens == ["2", "0", "4", "8"]
