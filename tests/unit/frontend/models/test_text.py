"""From tokens to text, on a byte-level tokenizer and on one with byte fallback."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from pagewire_frontend.models.detokenizer import Detokenizer
from pagewire_frontend.models.tokenizer import TextTokenizer, load_tokenizer
from pagewire_frontend.session.choice_text import ChoiceText, natural_end
from pagewire_frontend.session.events import FinishReason
from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.params import SamplingParams
from support.checkpoints.text_models import make_text_model

EOS = 2


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_tokenizer(make_text_model(tmp_path_factory.mktemp("model"), vocab=400))


@pytest.fixture(scope="module")
def fallback():
    """A Llama-2 style tokenizer: word starts marked with ▁, unknown characters as bytes."""
    words = ["<unk>", "</s>", "▁hello", "▁world", "h", "i", "▁"]
    vocab = [*words, *(f"<0x{byte:02X}>" for byte in range(256))]
    built = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(vocab)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    built.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )
    built.add_special_tokens([AddedToken("</s>", special=True)])
    return TextTokenizer(built)


def stream(tokenizer, ids, prompt=(), *, skip=True):
    detokenizer = Detokenizer(tokenizer, list(prompt), skip_special_tokens=skip)
    return [detokenizer.push(token_id) for token_id in ids], detokenizer.flush()


def test_a_character_waits_for_its_last_byte(tokenizer):
    ids = tokenizer.encode("a€😀b", add_special_tokens=False)
    pieces, tail = stream(tokenizer, ids)
    assert tail == ""
    assert "".join(pieces) == "a€😀b"
    assert not any("�" in piece for piece in pieces)


def test_an_incomplete_character_comes_out_at_the_end(tokenizer):
    ids = tokenizer.encode("a€", add_special_tokens=False)[:-1]
    pieces, tail = stream(tokenizer, ids)
    assert "".join(pieces) == "a"
    assert tail == "�"


def test_special_tokens_are_left_out_or_kept(tokenizer):
    ids = [*tokenizer.encode("x", add_special_tokens=False), EOS]
    assert "".join(stream(tokenizer, ids)[0]) == "x"
    assert "".join(stream(tokenizer, ids, skip=False)[0]) == "x<|im_end|>"


@settings(max_examples=150, deadline=None)
@given(ids=st.lists(st.integers(0, 399), max_size=40), prompt=st.lists(st.integers(3, 9)))
def test_a_stream_says_what_decoding_at_once_says(tokenizer, ids, prompt):
    pieces, tail = stream(tokenizer, ids, prompt)
    assert "".join(pieces) + tail == tokenizer.decode(ids, skip_special_tokens=True)


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=30))
def test_text_survives_the_round_trip(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces, tail = stream(tokenizer, ids)
    assert "".join(pieces) + tail == text
    assert b"".join(tokenizer.token_bytes(i) for i in ids).decode() == text


def test_the_space_before_the_first_word_is_kept_after_a_prompt(fallback):
    hello, world = 2, 3
    assert "".join(stream(fallback, [world], [hello])[0]) == " world"


def test_byte_fallback_makes_whole_characters(fallback):
    euro = [7 + byte for byte in "€".encode()]
    pieces, tail = stream(fallback, [2, *euro, 3])
    assert "".join(pieces) + tail == "hello€ world"
    assert b"".join(fallback.token_bytes(i) for i in euro) == "€".encode()


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(st.sampled_from([2, 3, 4, 5]) | st.characters(codec="utf-8"), max_size=20))
def test_words_and_bytes_mix(fallback, parts):
    ids: list[int] = []
    for part in parts:
        ids += [part] if isinstance(part, int) else [7 + byte for byte in part.encode()]
    pieces, tail = stream(fallback, ids, prompt=[2])
    whole = fallback.decode([2, *ids], skip_special_tokens=True)
    assert "".join(pieces) + tail == whole.removeprefix("hello")


@settings(max_examples=150, deadline=None)
@given(ids=st.lists(st.integers(1, 262), max_size=20))
def test_bytes_that_are_no_text_lose_no_word(fallback, ids):
    # The decoder takes back a character when a broken byte follows; what was shown stays shown.
    pieces, tail = stream(fallback, ids, prompt=[2])
    text = "".join(pieces) + tail
    assert text.count("hello") == ids.count(2)
    assert text.count("world") == ids.count(3)


def test_ids_outside_the_tokenizer_have_no_text(tokenizer):
    assert stream(tokenizer, [5000]) == ([""], "")


def test_a_broken_tokenizer_is_one_clear_line(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(StartupError, match=r"tokenizer\.json is no tokenizer"):
        load_tokenizer(tmp_path)


def choice(tokenizer, **params):
    return ChoiceText(tokenizer, [], SamplingParams(seed=1, **params), (EOS,))


def test_stop_tokens_are_counted_but_not_shown(tokenizer):
    text = choice(tokenizer, skip_special_tokens=False)
    shown = text.push([*tokenizer.encode("x", add_special_tokens=False), EOS])
    assert (shown, text.flush()) == ((2, "x", None), (0, "", None))


def test_tokens_after_a_match_are_not_taken(tokenizer):
    text = choice(tokenizer, stop="b")
    ids = [i for char in "abc" for i in tokenizer.encode(char, add_special_tokens=False)]
    assert text.push(ids) == (2, "a", "b")


def test_no_stop_string_matches_before_min_tokens(tokenizer):
    text = choice(tokenizer, stop="b", min_tokens=2)
    ids = [i for char in "bbb" for i in tokenizer.encode(char, add_special_tokens=False)]
    assert text.push(ids) == (3, "bb", "b")


def test_a_match_may_begin_but_not_end_before_min_tokens(tokenizer):
    text = choice(tokenizer, stop=["ab", "abc"], min_tokens=2)
    ids = [i for char in "abc" for i in tokenizer.encode(char, add_special_tokens=False)]
    assert text.push(ids) == (3, "", "abc")


@pytest.mark.parametrize(
    ("ids", "end"),
    [
        ([], None),
        ([5, 6], None),
        ([5, EOS], (FinishReason.STOP, None)),
        ([EOS], None),
        ([5, 9], (FinishReason.STOP, 9)),
        ([5, 6, 7, 8], (FinishReason.LENGTH, None)),
        ([5, 6, 7, EOS], (FinishReason.STOP, None)),
    ],
)
def test_natural_ends(ids, end):
    params = SamplingParams(max_tokens=4, min_tokens=1, stop_token_ids=(9,), seed=1)
    assert natural_end(ids, params, (EOS,)) == end
