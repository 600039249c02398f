"""Tokenizers of the kinds that models have, tiny and made here."""

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)

from pagewire_frontend.models.tokenizer import TextTokenizer

_WORDS = ("hello", "world", "the", "▁hello", "▁world", "▁the", "▁")


def byte_level(**normalizer: object) -> TextTokenizer:
    """Return a byte-level BPE whose tokens also end one character and begin the next."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    chars = {byte: char for char, byte in _bytes_of(alphabet).items()}
    # The last byte of one euro sign and the first of the next: a text of them is never whole.
    pairs = [(chars[0xAC], chars[0xE2]), (chars[0xE2], chars[0x82])]
    merged = [left + right for left, right in pairs]
    vocab = {token: index for index, token in enumerate([*alphabet, *merged, "Ġhello"])}
    built = Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    if normalizer:
        built.normalizer = normalizer["normalizer"]
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken("<|end|>", special=True)])
    return TextTokenizer(built)


def byte_fallback() -> TextTokenizer:
    """Return a Llama-2 style tokenizer: word starts marked, unknown characters as bytes."""
    vocab = ["<unk>", "</s>", *_WORDS, *"hi!", *(f"<0x{byte:02X}>" for byte in range(256))]
    built = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(vocab)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    built.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    built.decoder = decoders.Sequence([*steps, decoders.Strip(content=" ", left=1, right=0)])
    built.add_special_tokens([AddedToken("</s>", special=True)])
    return TextTokenizer(built)


def word_piece() -> TextTokenizer:
    """Return a BERT style tokenizer: a word of any length may become one unknown token."""
    vocab = ["[UNK]", "hello", "world", "##s", "##ing", "the", "!", "日"]
    built = Tokenizer(
        models.WordPiece(
            vocab={token: index for index, token in enumerate(vocab)}, unk_token="[UNK]"
        )
    )
    built.normalizer = normalizers.BertNormalizer()
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece()
    return TextTokenizer(built)


def metaspace() -> TextTokenizer:
    """Return a Unigram tokenizer with marked word starts, which fuses what it does not know."""
    pieces = [("<unk>", 0.0), *((word, -2.0) for word in _WORDS), ("é", -3.0), ("日", -3.0)]
    built = Tokenizer(models.Unigram(pieces, unk_id=0))
    built.pre_tokenizer = pre_tokenizers.Metaspace()
    built.decoder = decoders.Metaspace()
    return TextTokenizer(built)


KINDS = {
    "byte_level": byte_level,
    "byte_fallback": byte_fallback,
    "word_piece": word_piece,
    "metaspace": metaspace,
}


def _bytes_of(alphabet: list[str]) -> dict[str, int]:
    """Return the byte of each printable character of a byte-level vocabulary."""
    encoder = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    # Every byte of UTF-8 but the never used ones stands in some character.
    found: dict[str, int] = {}
    for code in [*range(0x80), *range(0x80, 0x800, 0x3F), *range(0x800, 0xD800, 0x1F)]:
        raw = chr(code).encode()
        spelled = encoder.pre_tokenize_str(chr(code))[0][0]
        found.update(zip(spelled, raw, strict=True))
    return {char: found[char] for char in alphabet if char in found}
