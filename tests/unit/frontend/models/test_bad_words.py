"""Bad words as token sequences, against vLLM's rule spelt out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from pagewire_frontend.engine.request_fit import with_bad_sequences
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams

WORDS = ["<unk>", "bad", "Ġbad", "word", "Ġ", "b", "a", "d", "Ġa", "ad", "w", "o", "r"]


class Spaced:
    """A tokenizer that knows some words with and some only without a space before them."""

    def __init__(self) -> None:
        built = Tokenizer(
            models.BPE(
                vocab={token: i for i, token in enumerate(WORDS)},
                merges=[("a", "d"), ("b", "ad"), ("Ġ", "bad"), ("Ġ", "a")],
                unk_token="<unk>",
            )
        )
        built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self._built = built

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return self._built.encode(text, add_special_tokens=False).ids


TOKENIZER = Spaced()


def sequences(*words, **params):
    params = SamplingParams(bad_words=words, **params)
    return with_bad_sequences(params, TOKENIZER).bad_token_sequences


def test_a_word_with_a_token_of_its_own_after_a_space_counts_twice():
    assert sequences("bad") == ((1,), (2,))


def test_a_longer_form_with_a_space_is_left_out():
    # " w" is "Ġ" + "w": its last token is the bare word's, which is forbidden anyway.
    assert sequences("w") == ((10,),)


def test_spaces_before_a_word_say_nothing():
    assert sequences("  bad") == sequences("bad")


def test_sequences_given_as_ids_stay():
    assert sequences("bad", bad_token_sequences=((9, 9),)) == ((9, 9), (1,), (2,))


@pytest.mark.parametrize("word", [" ", "\t \n"])
def test_a_word_without_tokens_is_refused(word):
    with pytest.raises(InvalidRequestError, match="has no tokens") as caught:
        sequences(word)
    assert caught.value.field == "bad_words"


def test_too_many_tokens_are_the_words_fault():
    with pytest.raises(InvalidRequestError) as caught:
        sequences(*["bad"] * 64, bad_token_sequences=((1,),) * 200)
    assert caught.value.field == "bad_words"


def _as_vllm(words):
    found = []
    for word in words:
        for has_space in (False, True):
            ids = TOKENIZER.encode(" " * has_space + word.lstrip(), add_special_tokens=False)
            if not has_space or (ids[0] != found[-1][0] and len(ids) == len(found[-1])):
                found.append(ids)
    return tuple(map(tuple, found))


@settings(deadline=None)
@given(st.lists(st.text(alphabet="badwor", min_size=1, max_size=5), max_size=5))
def test_it_is_vllms_rule(words):
    assert sequences(*words) == _as_vllm(words)
