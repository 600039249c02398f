"""--speculative-config: what is read, and what is refused by name."""

import pytest

from pagewire_shared.errors import StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.speculation.settings import (
    SpeculationSettings,
    parse_speculation,
    read_speculation,
)
from support.cells.worker_driver import load


def test_the_settings_of_vllm_are_read():
    text = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'
    assert read_speculation(text) == SpeculationSettings(
        method="ngram", num_speculative_tokens=5, prompt_lookup_min=4, prompt_lookup_max=4
    )


def test_suffixes_give_as_many_drafts_as_they_compare():
    deep = '{"method": "suffix", "suffix_decoding_max_tree_depth": 8}'
    assert read_speculation('{"method": "suffix"}').num_speculative_tokens == 24
    assert read_speculation(deep).num_speculative_tokens == 8


@pytest.mark.parametrize("name", ["mtp", "deepseek_mtp", "glm4_moe_mtp"])
def test_names_of_vllm_for_one_method(name):
    assert read_speculation(f'{{"method": "{name}"}}').method == "mtp"


def test_a_model_alone_names_the_method():
    text = '{"model": "some/draft", "num_speculative_tokens": 2, "kv_cache_memory": "1MiB"}'
    assert read_speculation(text) == SpeculationSettings(
        method="draft_model",
        model="some/draft",
        num_speculative_tokens=2,
        kv_cache_memory=1024**2,
    )


@pytest.mark.parametrize("text", ["", "{}", '{"method": "none", "num_speculative_tokens": 3}'])
def test_speculation_is_off(text):
    assert parse_speculation(text) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "not a JSON object"),
        ("ngram", "not JSON"),
        (
            '{"method": "medusa"}',
            "method 'medusa' is not there yet; there are ngram, suffix, draft_model, eagle, eagle3,"
            " mtp, grammar, none",
        ),
        ('{"num_speculative_tokens": 3}', "no method is named"),
        ('{"method": "ngram", "model": "x"}', "model is not for method ngram"),
        (
            '{"model": "x", "prompt_lookup_min": 2}',
            "prompt_lookup_min is not for method draft_model",
        ),
        (
            '{"method": "grammar", "prompt_lookup_min": 2}',
            "prompt_lookup_min is not for method grammar",
        ),
        ('{"method": "mtp", "model": "x"}', "model is not for method mtp"),
        ('{"method": ["mtp"]}', "is not there yet"),
        ('{"method": "eagle3"}', "model is needed for method eagle3"),
        (
            '{"method": "eagle3", "model": "x", "quantization": "int8"}',
            "quantization is not for method eagle3",
        ),
        ('{"method": "grammar", "model": "x"}', "model is not for method grammar"),
        ('{"model": 3}', "model must be a text"),
        ('{"model": "x", "kv_cache_memory": "much"}', "'much' is not a size"),
        (
            '{"method": "ngram", "draft_tensor_parallel_size": 1}',
            "draft_tensor_parallel_size is no",
        ),
        ('{"method": "ngram", "num_speculative_tokens": 0}', "num_speculative_tokens must be"),
        ('{"method": "ngram", "num_speculative_tokens": true}', "num_speculative_tokens must be"),
        ('{"method": "ngram", "num_speculative_tokens": 65}', "num_speculative_tokens must be"),
        (
            '{"method": "suffix", "suffix_decoding_min_token_prob": 1.5}',
            "suffix_decoding_min_token_prob must be a number from 0 to 1",
        ),
        (
            '{"method": "suffix", "suffix_decoding_max_tree_depth": 65}',
            "(num_speculative_tokens|suffix_decoding_max_tree_depth) must be a whole number",
        ),
        ('{"method": "none", "adaptive": 1}', "adaptive must be true or false"),
        (
            '{"method": "ngram", "prompt_lookup_min": 3, "prompt_lookup_max": 2}',
            "prompt_lookup_min must be a whole number from 1 to 2",
        ),
    ],
)
def test_other_settings_are_refused_by_name(text, reason):
    with pytest.raises(StartupError, match=reason):
        parse_speculation(text)


def test_the_hello_says_how_many_drafts_are_verified(checkpoint):
    ngram = '{"method": "ngram", "num_speculative_tokens": 3}'
    assert load(checkpoint("llama"), speculative_config=ngram).info.max_drafts == 3
    assert load(checkpoint("llama")).info.max_drafts == 0
    assert WorkerConfig(model="x").speculative_config == ""
