"""The tokenizer of a model that is served without one: ids in, ids out, no text."""

from tokenizers import Tokenizer, models

from pagewire_frontend.models.tokenizer import TextTokenizer
from pagewire_shared.errors import InvalidRequestError


class NoTokenizer(TextTokenizer):
    """Writes every id as no text, and refuses to read one."""

    def __init__(self) -> None:
        super().__init__(Tokenizer(models.WordLevel({}, unk_token="")))

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Raise InvalidRequestError: a text cannot be read."""
        raise InvalidRequestError(
            "this model is served without its tokenizer (--skip-tokenizer-init): give token ids",
            field="prompt",
        )
