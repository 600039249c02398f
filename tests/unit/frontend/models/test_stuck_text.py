"""A text that never becomes a whole character is shown all the same, in bounded pieces, and every
other text is shown as it always was."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagewire_frontend.models.detokenizer import MAX_PENDING_TOKENS, Detokenizer
from support.checkpoints.tokenizer_kinds import KINDS, byte_fallback, byte_level

MANY = 500


@pytest.fixture(scope="module", params=sorted(KINDS))
def tokenizer(request):
    return KINDS[request.param]()


def shown(tokenizer, ids, *, skip=True):
    """Return the text after each token, and the last of it."""
    detokenizer = Detokenizer(tokenizer, [], skip_special_tokens=skip)
    pieces = [detokenizer.push(token_id) for token_id in ids]
    return pieces, detokenizer.flush()


def held(tokenizer, ids):
    """Return the most tokens that waited at once."""
    detokenizer = Detokenizer(tokenizer, [], skip_special_tokens=True)
    counts = []
    for token_id in ids:
        detokenizer.push(token_id)
        counts.append(detokenizer.num_pending)
    return max(counts)


def ids_of_byte(tokenizer, byte):
    return [item for item in range(tokenizer.vocab_size) if tokenizer.token_bytes(item) == byte]


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
@pytest.mark.parametrize("byte", [b"\x80", b"\xf0", b"\xff"])
def test_lone_bytes_are_shown_while_they_come(make, byte):
    tokenizer = make()
    ids = ids_of_byte(tokenizer, byte)[:1] * MANY
    pieces, tail = shown(tokenizer, ids)
    assert "".join(pieces) + tail == tokenizer.decode(ids, skip_special_tokens=True)
    for count in range(1, MANY):
        assert len("".join(pieces[:count])) >= count - MAX_PENDING_TOKENS
    assert held(tokenizer, ids) <= MAX_PENDING_TOKENS


def test_tokens_that_end_one_character_and_begin_the_next_are_shown():
    tokenizer = byte_level()
    [both] = ids_of_byte(tokenizer, b"\xac\xe2")
    [first], [middle], [last] = (ids_of_byte(tokenizer, bytes([b])) for b in "€".encode())
    ids = [first, *[middle, both] * MANY, middle, last]
    pieces, tail = shown(tokenizer, ids)
    assert "".join(pieces) + tail == "€" * (MANY + 1)
    assert len("".join(pieces[:MANY])) >= MANY // 2 - MAX_PENDING_TOKENS
    assert held(tokenizer, ids) <= MAX_PENDING_TOKENS


@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_tokens_without_a_text_do_not_pile_up(make):
    tokenizer = make()
    [special] = (tokenizer.added_tokens[text] for text in tokenizer.special_texts)
    ids = [special] * MANY
    assert shown(tokenizer, ids) == ([""] * MANY, "")
    assert held(tokenizer, ids) <= MAX_PENDING_TOKENS


@pytest.fixture(scope="module")
def bytes_only():
    return byte_level()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_stream_of_any_tokens_says_what_decoding_at_once_says(bytes_only, data):
    tokenizer = bytes_only
    few = [*ids_of_byte(tokenizer, b"\xac\xe2"), *ids_of_byte(tokenizer, b"\xe2\x82")]
    few += [ids_of_byte(tokenizer, bytes([b]))[0] for b in (0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x61)]
    few += [tokenizer.added_tokens["<|end|>"], tokenizer.vocab_size + 5]
    any_id = st.sampled_from(few) | st.integers(0, tokenizer.vocab_size - 1)
    ids = data.draw(st.lists(any_id, max_size=60))
    for skip in (True, False):
        pieces, tail = shown(tokenizer, ids, skip=skip)
        assert "".join(pieces) + tail == tokenizer.decode(ids, skip_special_tokens=skip)


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.characters(codec="utf-8") | st.sampled_from("€😀日é hello"), max_size=40))
def test_texts_are_streamed_as_they_are(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces, tail = shown(tokenizer, ids)
    assert "".join(pieces) + tail == tokenizer.decode(ids, skip_special_tokens=True)


@settings(max_examples=100, deadline=None)
@given(runs=st.lists(st.integers(1, 9), max_size=6))
def test_runs_of_bytes_that_are_no_text_lose_nothing(runs):
    tokenizer = byte_fallback()
    [broken], [hello] = ids_of_byte(tokenizer, b"\x80"), [tokenizer.id_of("▁hello")]
    ids = [item for count in runs for item in [hello, *[broken] * count]]
    pieces, tail = shown(tokenizer, ids)
    assert "".join(pieces) + tail == tokenizer.decode(ids, skip_special_tokens=True)
