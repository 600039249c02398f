"""Checks that a request fits its model: token ids within the vocabulary, prompt and answer within
the context. Cuts the prompt where the client allows it, and turns bad words into tokens."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from pagewire_frontend.prompts.generation_request import (
    GenerationRequest,
    TokenPrompt,
    prompt_field,
)
from pagewire_shared.errors import ContextLengthError, InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams

MAX_PROMPT_IDS: Final = 2**21
"""Most token ids of a request over gRPC, checked before they become objects: more than any sequence
has. A message has room for eight times as many, which would take the event loop most of a second.
"""


MAX_PREDICTION_CHARS: Final = 2**17
"""Most characters of what an answer is expected to be: its tokens go to schedulers and workers."""


def check_prediction(text: str) -> None:
    """Raise InvalidRequestError for a prediction that is too long."""
    if len(text) > MAX_PREDICTION_CHARS:
        raise InvalidRequestError(
            f"prediction: at most {MAX_PREDICTION_CHARS} characters, got {len(text)}",
            field="prediction",
        )


def check_num_ids(num_ids: int, field: str) -> None:
    """Raise InvalidRequestError naming `field` for more token ids than any prompt has."""
    if num_ids > MAX_PROMPT_IDS:
        raise InvalidRequestError(
            f"{field}: at most {MAX_PROMPT_IDS} token ids, got {num_ids}", field=field
        )


def check_prompt_ids(request: GenerationRequest, token_ids: Sequence[int]) -> None:
    """Raise InvalidRequestError for a prompt without tokens or with ids outside the vocabulary."""
    field = prompt_field(request)
    if not token_ids:
        raise InvalidRequestError(f"{field} must not be empty", field=field)
    if not isinstance(request.prompt, TokenPrompt):
        return
    size = request.model.vocab_size
    if min(token_ids) < 0 or max(token_ids) >= size:
        raise InvalidRequestError(f"{field}: token ids must be in [0, {size})", field=field)


def check_num_chars(request: GenerationRequest, limit: int, num_chars: int) -> None:
    """Raise ContextLengthError for a text that has too many tokens, however it is tokenized.

    Args:
        request: The request; a prompt that will be cut has no such bound.
        limit: Longest sequence in tokens, prompt and answer together.
    """
    most = request.model.tokenizer.max_chars_per_token
    if most is None or request.params.truncate_prompt_tokens is not None:
        return
    num_tokens = -(-num_chars // most)
    if num_tokens > limit:
        raise ContextLengthError(
            f"{_context(limit)}, but the prompt has {num_chars} characters, which are at least "
            f"{num_tokens} tokens",
            field=prompt_field(request),
        )


def check_vocabulary(params: SamplingParams, vocab_size: int) -> None:
    """Raise InvalidRequestError naming the first field with a token id that the model lacks."""
    for field, token_ids in _named_ids(params):
        largest = max(token_ids, default=0)
        if largest >= vocab_size:
            raise InvalidRequestError(
                f"{field}: token ids must be in [0, {vocab_size}), got {largest}", field=field
            )


def check_model_limits(request: GenerationRequest) -> None:
    """Raise InvalidRequestError for more log-probabilities than the model's options allow, and for
    fields about text where the model is served without its tokenizer."""
    model, params = request.model, request.params
    for name in ("logprobs", "prompt_logprobs"):
        wanted = getattr(params, name)
        if wanted is not None and wanted > model.max_logprobs:
            raise InvalidRequestError(
                f"{name}: at most {model.max_logprobs} are served (--max-logprobs), got {wanted}",
                field=name,
            )
    if model.has_text:
        return
    for name in ("stop", "bad_words", "structured_outputs"):
        if getattr(params, name):
            raise InvalidRequestError(
                f"{name} needs a tokenizer, and this model is served with --skip-tokenizer-init",
                field=name,
            )


def _named_ids(params: SamplingParams) -> Iterator[tuple[str, Sequence[int]]]:
    yield "logit_bias", tuple(params.logit_bias)
    yield "allowed_token_ids", params.allowed_token_ids
    yield "stop_token_ids", params.stop_token_ids
    for sequence in params.bad_token_sequences:
        yield "bad_token_sequences", sequence


def check_dimensions(request: GenerationRequest, embedding_size: int | None) -> None:
    """Raise InvalidRequestError for more dimensions than vectors have; `embedding_size` None while
    it is not known."""
    wanted = request.pooling.dimensions if request.pooling is not None else None
    if wanted is not None and embedding_size is not None and wanted > embedding_size:
        raise InvalidRequestError(
            f"dimensions is {wanted}, but the vectors have {embedding_size}", field="dimensions"
        )


def fit(
    request: GenerationRequest, token_ids: list[int], limit: int
) -> tuple[list[int], SamplingParams]:
    """Return the prompt, cut where the client asks for it, and the parameters with max_tokens set.

    Args:
        limit: Longest sequence in tokens, prompt and answer together.

    Raises:
        InvalidRequestError: truncate_prompt_tokens is larger than the context.
        ContextLengthError: Prompt and answer do not fit; names the field at fault.
    """
    if request.pooling is not None:
        return _fit_pooling(request, token_ids, limit)
    token_ids = _truncated(request.params, token_ids, limit)
    num_prompt, room = len(token_ids), limit - len(token_ids)
    if room < 1:
        raise ContextLengthError(
            f"{_context(limit)}, but the prompt has {num_prompt}; at least one is needed for the "
            "answer",
            field=prompt_field(request),
        )
    wanted = request.params.max_tokens
    if wanted is not None and wanted > room:
        raise ContextLengthError(
            f"{_context(limit)}: after a prompt of {num_prompt} there is room for {room}, but "
            f"max_tokens is {wanted}",
            field="max_tokens",
        )
    return token_ids, request.params.with_(max_tokens=wanted if wanted is not None else room)


def _context(limit: int) -> str:
    # Clients such as litellm know the error by these words of OpenAI's.
    return f"this model's maximum context length is {limit} tokens"


def _fit_pooling(
    request: GenerationRequest, token_ids: list[int], limit: int
) -> tuple[list[int], SamplingParams]:
    """Return the same as `fit`, for a request that needs no room behind the prompt."""
    kept = request.params.truncate_prompt_tokens
    if kept == -1:
        token_ids = token_ids[-limit:]
    elif kept is not None:
        token_ids = _truncated(request.params, token_ids, limit)
    if len(token_ids) > limit:
        raise ContextLengthError(
            f"{_context(limit)}, but the input has {len(token_ids)}",
            field=prompt_field(request),
        )
    return token_ids, request.params


def num_kept(kept: int | None, limit: int | None) -> int | None:
    """Return how many tokens of an encoder's prompt are kept, special ones included; None for all.

    Args:
        kept: truncate_prompt_tokens.
        limit: The context; None while it is unknown.

    Raises:
        InvalidRequestError: More than the context are to be kept.
    """
    if kept is not None and limit is not None and kept > limit:
        raise InvalidRequestError(
            f"truncate_prompt_tokens is {kept}, but the context has {limit} tokens",
            field="truncate_prompt_tokens",
        )
    return limit if kept == -1 else kept


def _truncated(params: SamplingParams, token_ids: list[int], limit: int) -> list[int]:
    """Return the last tokens of the prompt, at most truncate_prompt_tokens."""
    kept = params.truncate_prompt_tokens
    if kept is None:
        return token_ids
    if kept > limit:
        raise InvalidRequestError(
            f"truncate_prompt_tokens is {kept}, but the context has {limit} tokens",
            field="truncate_prompt_tokens",
        )
    if kept == -1:
        kept = limit - (params.max_tokens or 1)
        if kept < 1:
            raise ContextLengthError(
                f"{_context(limit)}, but max_tokens is {params.max_tokens}, which leaves no room "
                "for a prompt",
                field="max_tokens",
            )
    return token_ids[-kept:]


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
