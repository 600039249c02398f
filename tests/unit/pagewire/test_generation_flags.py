"""Sampling flags of generate and chat: exactly what was given is sent."""

import pytest

from pagewire.cli.generation import GenerationConfig, sampling_of
from pagewire.cli.settings import load, make_parser
from pagewire.client.client_convert import options_message
from pagewire_shared.errors import InvalidRequestError, StartupError
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams


def sampling(*words: str) -> dict[str, object]:
    loaded, _ = load(make_parser("generate", GenerationConfig, "x"), GenerationConfig, words)
    return sampling_of(loaded.config, 10)


def test_without_flags_the_models_defaults_apply() -> None:
    assert sampling() == {"max_tokens": 10}


def test_zero_is_sent_as_a_value() -> None:
    given = sampling("--temperature", "0", "--seed", "0", "--top-k", "0", "--min-tokens", "0")
    assert given == {"max_tokens": 10, "temperature": 0.0, "seed": 0, "top_k": 0, "min_tokens": 0}


def test_texts_and_switches_are_sent() -> None:
    given = sampling("--stop", "\n", "--stop", "a,b", "--ignore-eos", "--max-tokens", "3")
    assert given == {"max_tokens": 3, "stop": ("\n", "a,b"), "ignore_eos": True}


def test_penalties_and_bad_words_are_sent() -> None:
    words = ("--presence-penalty", "0.5", "--repetition_penalty", "1.5", "--bad-words", "a, b")
    given = sampling(*words, "--truncate-prompt-tokens", "-1")
    assert given == {
        "max_tokens": 10,
        "presence_penalty": 0.5,
        "repetition_penalty": 1.5,
        "bad_words": ("a, b",),
        "truncate_prompt_tokens": -1,
    }


def test_biases_become_a_map() -> None:
    given = sampling("--logit-bias", "5=-2", "--logit-bias", "0=1.5")
    assert given == {"max_tokens": 10, "logit_bias": {5: -2.0, 0: 1.5}}
    with pytest.raises(StartupError, match="ID=BIAS"):
        sampling("--logit-bias", "word")


def test_structured_output_flags_become_one_constraint() -> None:
    given = sampling("--structured-choice", "yes", "--structured-choice", "no")
    assert given["structured_outputs"] == StructuredOutputsParams(choice=("yes", "no"))
    given = sampling("--structured-regex", "a+")
    assert options_message(given).sampling.structured_outputs.regex == "a+"
    with pytest.raises(InvalidRequestError, match="regex and grammar"):
        sampling("--structured-regex", "a", "--structured-grammar", "start: A")
