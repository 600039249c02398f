"""Shapes log-probabilities as the two shapes of the OpenAI API, and those of prompts as vLLM's.
Keeps the running text offset of completions."""

from collections.abc import Sequence
from typing import Any

from pagewire_frontend.models.tokenizer import TextTokenizer
from pagewire_frontend.session.journal_records import TokenLogprob

# JSON has no infinity; OpenAI's own stand-in for "impossible".
LOWEST = -9999.0


class TokenNamer:
    """Names tokens in log-probabilities: by their text, or by their id as vLLM does.

    Args:
        has_ids: Whether by their id: "token_id:7".
    """

    def __init__(self, tokenizer: TextTokenizer, *, has_ids: bool) -> None:
        self.tokenizer = tokenizer
        self.has_ids = has_ids

    def name(self, token_id: int) -> str:
        """Return the name of a token."""
        return f"token_id:{token_id}" if self.has_ids else self.tokenizer.token_text(token_id)


def chat_logprobs(items: Sequence[TokenLogprob], namer: TokenNamer) -> dict[str, Any]:
    """Return the shape of chat completions; `bytes` lets clients join partial characters."""
    content = []
    for item in items:
        entry = _chat_token(item.token_id, item.logprob, namer)
        entry["top_logprobs"] = [_chat_token(i, value, namer) for i, value in item.top]
        content.append(entry)
    return {"content": content, "refusal": None}


def _chat_token(token_id: int, logprob: float, namer: TokenNamer) -> dict[str, Any]:
    return {
        "token": namer.name(token_id),
        "logprob": max(logprob, LOWEST),
        "bytes": list(namer.tokenizer.token_bytes(token_id)),
    }


def prompt_logprobs(
    items: Sequence[TokenLogprob], num_top: int, tokenizer: TextTokenizer
) -> list[dict[str, Any] | None]:
    """Return vLLM's shape: null for the first token, then a map per token. The map goes from ids to
    log-probability, rank and text, for the token itself and the `num_top` likeliest."""
    return [None, *(_by_id(item, num_top, tokenizer) for item in items)]


def _by_id(item: TokenLogprob, num_top: int, tokenizer: TextTokenizer) -> dict[str, Any]:
    ranked = [(item.token_id, item.logprob, item.rank)]
    best = enumerate(item.top[:num_top], start=1)
    ranked += [(i, value, rank) for rank, (i, value) in best if i != item.token_id]
    return {
        str(token_id): {
            "logprob": max(value, LOWEST),
            "rank": rank,
            "decoded_token": tokenizer.token_text(token_id),
        }
        for token_id, value, rank in ranked
    }


class CompletionLogprobs:
    """One choice's log-probabilities in the shape of completions, chunk by chunk."""

    def __init__(self, namer: TokenNamer, num_top: int) -> None:
        """Create the completion logprobs.

        Args:
            namer: Names the tokens.
            num_top: Likeliest tokens shown of each position.
        """
        self._namer = namer
        self._num_top = num_top
        self._offset = 0

    def take(
        self, items: Sequence[TokenLogprob], *, first_token_id: int | None = None
    ) -> dict[str, Any]:
        """Return the arrays of the next tokens; `first_token_id` comes before them and has no
        log-probability."""
        first = [] if first_token_id is None else [first_token_id]
        ids = [*first, *(item.token_id for item in items)]
        tokens = [self._namer.name(token_id) for token_id in ids]
        offsets = []
        for token_id in ids:
            offsets.append(self._offset)
            self._offset += len(self._namer.tokenizer.token_text(token_id))
        unknown: list[Any] = [None] * len(first)
        return {
            "tokens": tokens,
            "token_logprobs": [*unknown, *(max(item.logprob, LOWEST) for item in items)],
            "top_logprobs": [*unknown, *(self._top(item) for item in items)],
            "text_offset": offsets,
        }

    def _top(self, item: TokenLogprob) -> dict[str, float]:
        # The token itself is always in the map, whether or not it is among the best. Tokens that
        # are halves of characters look alike: the likeliest stands for them.
        found: dict[str, float] = {}
        for token_id, value in [*item.top[: self._num_top], (item.token_id, item.logprob)]:
            text = self._namer.name(token_id)
            found[text] = max(value, found.get(text, LOWEST))
        return found
