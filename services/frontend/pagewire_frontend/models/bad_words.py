"""Converts bad words to token sequences."""

from typing import Protocol

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams

FIELD = "bad_words"


class WordTokenizer(Protocol):
    """The method that this module needs of a tokenizer."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the ids of `text`."""
        ...


def with_bad_sequences(params: SamplingParams, tokenizer: WordTokenizer) -> SamplingParams:
    """Return `params` with its bad words added to bad_token_sequences.

    A word counts at the beginning of a text and after a space, as in vLLM
    (SamplingParams.update_from_tokenizer). The form with the space is added where it begins with
    another token and is as long as the form without.

    Raises:
        InvalidRequestError: A word has no tokens or too many; names bad_words.
    """
    sequences = list(params.bad_token_sequences)
    for word in params.bad_words:
        bare = tokenizer.encode(word.lstrip(), add_special_tokens=False)
        if not bare:
            raise InvalidRequestError(f"{FIELD}: {word!r} has no tokens", field=FIELD)
        sequences.append(tuple(bare))
        spaced = tokenizer.encode(" " + word.lstrip(), add_special_tokens=False)
        if spaced and spaced[0] != bare[0] and len(spaced) == len(bare):
            sequences.append(tuple(spaced))
    try:
        return params.with_(bad_token_sequences=tuple(sequences))
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{FIELD} as tokens: {error.message}", field=FIELD) from error
