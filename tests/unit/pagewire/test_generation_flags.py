"""Sampling flags of generate and chat: exactly what was given is sent."""

from pagewire.cli.generation import GenerationConfig, sampling_of
from pagewire.cli.settings import load, make_parser


def sampling(*words: str) -> dict[str, object]:
    loaded, _ = load(make_parser("generate", GenerationConfig, "x"), GenerationConfig, words)
    return sampling_of(loaded.config, 10)


def test_nothing_given_leaves_it_to_the_model() -> None:
    assert sampling() == {"max_tokens": 10}


def test_zero_is_a_value() -> None:
    given = sampling("--temperature", "0", "--seed", "0", "--top-k", "0", "--min-tokens", "0")
    assert given == {"max_tokens": 10, "temperature": 0.0, "seed": 0, "top_k": 0, "min_tokens": 0}


def test_texts_and_switches() -> None:
    given = sampling("--stop", "\n", "--stop", "a,b", "--ignore-eos", "--max-tokens", "3")
    assert given == {"max_tokens": 3, "stop": ("\n", "a,b"), "ignore_eos": True}
