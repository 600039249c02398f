"""The model's tokenizer: text to ids and back. The only module that imports tokenizers.

Models without a tokenizer.json go through transformers, which is imported only then because it
brings torch where it finds it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer
from tokenizers.decoders import DecodeStream

from pagewire_frontend.models.detokenizer import BrokenStreamError, DecodeStep
from pagewire_frontend.models.text_bound import max_chars_per_token
from pagewire_shared.errors import StartupError

_NUM_BYTES = 256


class TextTokenizer:
    """The tokenizer of one model; thread-safe for encoding and decoding, without state of any
    stream."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        # Left over from training; a prompt is never cut or padded silently.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        description = json.loads(tokenizer.to_str())
        self.max_chars_per_token: int | None = max_chars_per_token(description)
        """Most characters of a text that one token stands for; None without a bound."""
        decoders = _decoder_kinds(description)
        self._byte_of = _byte_alphabet() if "ByteLevel" in decoders else None
        # Decoder steps behind ByteLevel change the text.
        self._is_bytes = set(decoders) == {"ByteLevel"}
        added = tokenizer.get_added_tokens_decoder()
        self._special_ids = frozenset(item for item, token in added.items() if token.special)
        self.added_tokens = {token.content: token_id for token_id, token in added.items()}
        """Texts that are always one token, and its id."""
        self.special_texts = frozenset(token.content for token in added.values() if token.special)
        """Added tokens that are left out of texts without special tokens."""

    @property
    def vocab_size(self) -> int:
        """One more than the highest id, added tokens included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of `text`; releases the interpreter lock while it works."""
        # The library keeps the lock for a single text, but not for a list of texts.
        [encoding] = self._tokenizer.encode_batch_fast(
            [text], add_special_tokens=add_special_tokens
        )
        ids: list[int] = encoding.ids
        return ids

    def encode_within(
        self, first: str, second: str | None, *, most: int | None, add_special_tokens: bool = True
    ) -> tuple[list[int], int]:
        """Return the ids of a text or a pair, and the position where the second text begins.

        The position is 0 for one text, and where the tokenizer does not tell the two apart. Texts
        lose their last tokens where they have more than `most` together with the special tokens;
        the longer one loses them first.

        Raises:
            ValueError: The special tokens alone are more than `most`.
        """
        texts = [first] if second is None else [first, second]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        if most is not None:
            is_pair = second is not None
            room = most
            if add_special_tokens:
                room -= self._tokenizer.num_special_tokens_to_add(is_pair)
            if room < len(texts):
                raise ValueError(f"{most} tokens have no room for the special tokens and a text")
            for encoding, kept in zip(encodings, _kept(encodings, room), strict=True):
                encoding.truncate(kept)
        pair = encodings[1] if second is not None else None
        whole = self._tokenizer.post_process(encodings[0], pair, add_special_tokens)
        types = whole.type_ids
        return list(whole.ids), types.index(1) if second is not None and 1 in types else 0

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of `token_ids`; releases the interpreter lock while it works."""
        text: str
        [text] = self._tokenizer.decode_batch(
            [list(token_ids)], skip_special_tokens=skip_special_tokens
        )
        return text

    def open_stream(self, first_ids: Sequence[int], *, skip_special_tokens: bool) -> DecodeStep:
        """Return an incremental decoder that has seen `first_ids`."""
        stream = DecodeStream(ids=list(first_ids), skip_special_tokens=skip_special_tokens)
        tokenizer = self._tokenizer

        def step(token_id: int) -> str | None:
            try:
                text: str | None = stream.step(tokenizer, token_id)
            except Exception as error:
                raise BrokenStreamError(str(error)) from error
            return text

        return step

    def byte_reader(self, *, skip_special_tokens: bool) -> Callable[[int], bytes] | None:
        """Return a function from token to bytes, where texts are these bytes and nothing else; None
        for other tokenizers."""
        if not self._is_bytes:
            return None
        skipped = self._special_ids if skip_special_tokens else frozenset()
        return lambda token_id: b"" if token_id in skipped else self.token_bytes(token_id)

    def to_json(self) -> str:
        """Return the tokenizer as the text of a tokenizer.json."""
        text: str = self._tokenizer.to_str()
        return text

    def id_of(self, token: str) -> int | None:
        """Return the id of a token given by its content, or None."""
        token_id: int | None = self._tokenizer.token_to_id(token)
        return token_id

    def name_of(self, token_id: int) -> str:
        """Return the vocabulary's spelling of a token; empty for an unknown id."""
        name: str | None = self._tokenizer.id_to_token(token_id)
        return name or ""

    def token_text(self, token_id: int) -> str:
        """Return one token's text on its own, with replacement characters for half a character."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that one token stands for, which clients join to whole characters."""
        token: str | None = self._tokenizer.id_to_token(token_id)
        if token is None:
            return b""
        if self._byte_of is not None:
            if all(char in self._byte_of for char in token):
                return bytes(self._byte_of[char] for char in token)
            return token.encode()
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes([int(token[3:5], 16)])
        return token.replace("▁", " ").encode()


def _kept(encodings: Sequence[Encoding], room: int) -> list[int]:
    """Return how many tokens of each of one or two texts are kept, the longer one cut first."""
    lengths = [len(encoding) for encoding in encodings]
    if sum(lengths) <= room:
        return lengths
    if len(lengths) == 1:
        return [room]
    short = min(min(lengths), room // 2)
    rest = room - short
    return [short, rest] if lengths[0] <= lengths[1] else [rest, short]


def load_tokenizer(folder: Path) -> TextTokenizer:
    """Return the tokenizer of a model folder. Raises StartupError, naming the file."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return TextTokenizer(_from_transformers(folder))
    try:
        return TextTokenizer(Tokenizer.from_file(str(path)))
    except Exception as error:
        raise StartupError(f"{path} is no tokenizer: {error}") from error


def _from_transformers(folder: Path) -> Tokenizer:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise StartupError(
            f"{folder} has no tokenizer.json, and transformers, which could build one, "
            "is not installed"
        ) from error
    try:
        built: Any = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise StartupError(f"{folder} has no usable tokenizer: {error}") from error
    backend = getattr(built, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise StartupError(f"{folder} has no tokenizer.json and no fast tokenizer")
    return backend


def _decoder_kinds(description: Mapping[str, Any]) -> list[str]:
    """Return the kinds of the steps from tokens to text."""
    decoder = description.get("decoder") or {}
    return [step.get("type") for step in decoder.get("decoders", [decoder])]


def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's printable character for each byte, inverted (openai/gpt-2, encoder.py)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(_NUM_BYTES) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(_NUM_BYTES + index): byte for index, byte in enumerate(shifted)})
    return alphabet
