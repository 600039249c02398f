"""Bounds the characters of one token, so that a text that cannot fit is refused before it is
tokenized. Works on the description in a tokenizer.json.

The bound holds for every text, or there is no bound: a step that may drop or join any number of
characters, such as one that collapses white space, leaves a token without a bound.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

# Canonical composition joins at most this many characters: no decomposition is longer
# (https://www.unicode.org/faq/normalization.html).
_MAX_COMPOSED: Final = 4
_NORMALIZERS: Final = {
    "ByteLevel": 1,
    "Lowercase": 1,
    "NFC": _MAX_COMPOSED,
    "NFD": 1,
    "NFKC": _MAX_COMPOSED,
    "NFKD": 1,
    "Prepend": 1,
}
"""Most characters that become one; normalizers that are not listed may drop any number."""
_PRE_TOKENIZERS: Final = frozenset(
    {"ByteLevel", "Digits", "FixedLength", "Metaspace", "Punctuation", "Split", "UnicodeScripts"}
)
"""Pre-tokenizers that drop no character, unless their behavior is "Removed"."""
_NUM_BYTES: Final = 256

Part = Mapping[str, Any]


def max_chars_per_token(tokenizer: Part) -> int | None:
    """Return the most characters of a text that one token stands for; None without a bound."""
    factor = _shrinking(tokenizer.get("normalizer"))
    added = tokenizer.get("added_tokens") or []
    drops = (
        factor is None
        or not _keeps_all(tokenizer.get("pre_tokenizer"))
        # Such tokens absorb any amount of white space beside them.
        or any(token.get("lstrip") or token.get("rstrip") for token in added)
        or not _knows_all(tokenizer["model"], _is_byte_level(tokenizer))
    )
    if drops:
        return None
    assert factor is not None
    vocab = tokenizer["model"]["vocab"]
    # Unigram's vocabulary is a list of pairs.
    names = vocab if isinstance(vocab, Mapping) else [piece[0] for piece in vocab]
    texts = (token["content"] for token in added)
    longest = max((len(text) for group in (names, texts) for text in group), default=0)
    return max(1, longest) * factor


def _steps(part: Part | None, name: str) -> list[Part]:
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [inner for step in part[name] for inner in _steps(step, name)]


def _shrinking(normalizer: Part | None) -> int | None:
    """Return how many characters become one at most; None for any number."""
    factor = 1
    for step in _steps(normalizer, "normalizers"):
        shrinks = _replacing(step) if step["type"] == "Replace" else _NORMALIZERS.get(step["type"])
        if shrinks is None:
            return None
        factor *= shrinks
    return factor


def _replacing(step: Part) -> int | None:
    found, content = step["pattern"].get("String"), step["content"]
    if not found or not content:
        return None
    return math.ceil(len(found) / len(content))


def _keeps_all(pre_tokenizer: Part | None) -> bool:
    return all(
        step["type"] in _PRE_TOKENIZERS and step.get("behavior") != "Removed"
        for step in _steps(pre_tokenizer, "pretokenizers")
    )


def _is_byte_level(tokenizer: Part) -> bool:
    steps = _steps(tokenizer.get("pre_tokenizer"), "pretokenizers")
    steps += _steps(tokenizer.get("normalizer"), "normalizers")
    return any(step["type"] == "ByteLevel" for step in steps)


def _knows_all(model: Part, is_byte_level: bool) -> bool:
    """Return whether no characters are left out, or become one unknown token together."""
    vocab = model.get("vocab") or ()
    names = set(vocab if isinstance(vocab, Mapping) else (piece[0] for piece in vocab))
    if model.get("byte_fallback"):
        return all(f"<0x{byte:02X}>" in names for byte in range(_NUM_BYTES))
    if model.get("type") != "BPE":
        return False
    if is_byte_level:
        return sum(len(name) == 1 for name in names) >= _NUM_BYTES and _has_all_bytes(names)
    return model.get("unk_token") is not None and not model.get("fuse_unk")


def _has_all_bytes(names: set[str]) -> bool:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, _NUM_BYTES)}
    others = range(_NUM_BYTES, 2 * _NUM_BYTES - len(printable))
    return all(chr(code) in names for code in (*printable, *others))
