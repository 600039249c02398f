"""No text that fits is refused by its length: a token stands for at most as many characters as the
bound says, or there is no bound."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from pagewire_frontend.models.text_bound import max_chars_per_token
from pagewire_frontend.models.tokenizer import TextTokenizer, load_tokenizer
from pagewire_shared.identity.model_folder import BUILTIN_NAME, builtin_folder
from support.checkpoints.tokenizer_kinds import byte_fallback, byte_level, metaspace, word_piece

# Signs that compose, blanks, controls, and what a vocabulary may lack.
CHARS = st.sampled_from(
    "a e\u0301\u0323\u0345\u03b1\u0313\u0301 \u00a0\t\u200bﬁ\u1100\u1161\u11a8\x00€😀日"
)
TEXTS = st.text(CHARS | st.characters(codec="utf-8"), max_size=60)


def description(tokenizer):
    return json.loads(tokenizer.to_json())


def with_normalizer(*steps):
    return byte_level(normalizer=normalizers.Sequence(list(steps)))


BOUNDED = {
    "plain": byte_level,
    "fallback": byte_fallback,
    "nfc": lambda: with_normalizer(normalizers.NFC()),
    "nfkc": lambda: with_normalizer(normalizers.NFKC()),
    "lower": lambda: with_normalizer(normalizers.NFD(), normalizers.Lowercase()),
    "joined": lambda: with_normalizer(normalizers.Replace("aaa", "b"), normalizers.NFC()),
}


@pytest.mark.parametrize("kind", sorted(BOUNDED))
def test_no_token_stands_for_more(kind):
    tokenizer = BOUNDED[kind]()
    bound = tokenizer.max_chars_per_token
    assert bound is not None

    @settings(max_examples=100, deadline=None)
    @given(text=TEXTS | st.text("ae\u0301", max_size=60))
    def check(text):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert len(text) <= bound * len(ids)

    check()


def test_the_bound_of_the_builtin_model_is_its_longest_token():
    folder = builtin_folder(BUILTIN_NAME)
    assert folder is not None
    tokenizer = load_tokenizer(folder)
    names = [tokenizer.name_of(item) for item in range(tokenizer.vocab_size)]
    assert tokenizer.max_chars_per_token == max(map(len, names))


def added(**options):
    def make():
        tokenizer = Tokenizer.from_str(byte_level().to_json())
        tokenizer.add_tokens([AddedToken("<x>", **options)])
        return TextTokenizer(tokenizer)

    return make


def changed(**parts):
    """Return the description of a byte-level tokenizer with other parts."""

    def make():
        return TextTokenizer(Tokenizer.from_str(json.dumps({**description(byte_level()), **parts})))

    return make


REMOVING = {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False}
COLLAPSING = {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}
WORDS = {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
UNBOUNDED = {
    "word pieces": word_piece,
    "fused unknowns": metaspace,
    "strip": lambda: with_normalizer(normalizers.Strip()),
    "accents": lambda: with_normalizer(normalizers.NFD(), normalizers.StripAccents()),
    "bert": lambda: with_normalizer(normalizers.BertNormalizer()),
    "white space collapses": changed(normalizer=COLLAPSING),
    "white space goes": changed(pre_tokenizer=REMOVING),
    "words": changed(model=WORDS),
    "blanks before a token": added(lstrip=True),
    "blanks behind a token": added(rstrip=True),
}


@pytest.mark.parametrize("kind", sorted(UNBOUNDED))
def test_what_may_drop_any_number_has_no_bound(kind):
    assert UNBOUNDED[kind]().max_chars_per_token is None


def test_a_vocabulary_without_some_bytes_drops_them():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[1:]
    built = Tokenizer(models.BPE({char: index for index, char in enumerate(alphabet)}, []))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert max_chars_per_token(json.loads(built.to_str())) is None
