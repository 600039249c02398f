"""Log-probabilities in the two shapes of the OpenAI API. Owns the running text offset of
completions."""

from collections.abc import Sequence
from typing import Any

from pagewire_frontend.journal import TokenLogprob
from pagewire_frontend.tokenizer import TextTokenizer

# JSON has no infinity; OpenAI's own stand-in for "impossible".
LOWEST = -9999.0


def chat_logprobs(items: Sequence[TokenLogprob], tokenizer: TextTokenizer) -> dict[str, Any]:
    """Return the shape of chat completions; `bytes` lets clients join partial characters."""
    content = []
    for item in items:
        entry = _chat_token(item.token_id, item.logprob, tokenizer)
        entry["top_logprobs"] = [_chat_token(i, value, tokenizer) for i, value in item.top]
        content.append(entry)
    return {"content": content, "refusal": None}


def _chat_token(token_id: int, logprob: float, tokenizer: TextTokenizer) -> dict[str, Any]:
    raw = tokenizer.token_bytes(token_id)
    return {
        "token": raw.decode("utf-8", errors="replace"),
        "logprob": max(logprob, LOWEST),
        "bytes": list(raw),
    }


class CompletionLogprobs:
    """One choice's log-probabilities in the shape of completions, chunk by chunk."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0

    def take(self, items: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Return the arrays of the next tokens."""
        tokens = [self._tokenizer.token_text(item.token_id) for item in items]
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [max(item.logprob, LOWEST) for item in items],
            "top_logprobs": [self._top(item) for item in items],
            "text_offset": offsets,
        }

    def _top(self, item: TokenLogprob) -> dict[str, float]:
        # The sampled token is always in the map, whether or not it is among the best.
        pairs = [*item.top, (item.token_id, item.logprob)]
        return {
            self._tokenizer.token_text(token_id): max(value, LOWEST) for token_id, value in pairs
        }
