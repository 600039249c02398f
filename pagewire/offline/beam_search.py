"""Parameters and results of beam search in the offline API, with vLLM's names.

The scheduler searches; this module converts parameters and results.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pagewire.offline.outputs import CompletionOutput, RequestOutput
from pagewire.offline.prompts import GenerationRequest
from pagewire_shared.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """Parameters of a beam search.

    Attributes:
        beam_width: Number of sequences kept and returned, at most 16.
        max_tokens: Most tokens of a sequence.
        ignore_eos: Do not end a sequence at the end-of-sequence token.
        temperature: 0 or 1; a search looks for the most likely text.
        length_penalty: A sequence scores its sum of log-probabilities divided by its length to
            this power.
    """

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0

    @property
    def sampling(self) -> SamplingParams:
        """These parameters as SamplingParams; like vLLM's search, it ends when no better sequence
        can come. Raises InvalidRequestError with the field."""
        return SamplingParams(
            n=self.beam_width,
            max_tokens=self.max_tokens,
            ignore_eos=self.ignore_eos,
            temperature=self.temperature,
            use_beam_search=True,
            length_penalty=self.length_penalty,
            early_stopping="never",
        )


@dataclass(frozen=True, slots=True)
class BeamSearchSequence:
    """One sequence found.

    Attributes:
        tokens: Prompt and answer, without the end-of-sequence token.
        text: Text of `tokens`, with special tokens.
        cum_logprob: Sum of the log-probabilities of the answer's tokens, the end-of-sequence token
            included; None when prompt and answer fill the whole context.
        finish_reason, stop_reason: As in CompletionOutput.
    """

    tokens: list[int]
    text: str
    cum_logprob: float | None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True)
class BeamSearchOutput:
    """The sequences found for one prompt, the best first."""

    sequences: list[BeamSearchSequence]


def scoring_request(output: RequestOutput, choice: CompletionOutput) -> GenerationRequest:
    """Return a request for the log-probabilities of a sequence as a prompt, because a search itself
    reports none."""
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0)
    return GenerationRequest([*output.prompt_token_ids, *choice.token_ids], False, params)


def sum_of_answer(scored: RequestOutput, num_tokens: int) -> float:
    """Return the sum over the last `num_tokens` of a scored prompt."""
    assert scored.prompt_logprobs is not None, "asked for by scoring_request"
    last = slice(len(scored.prompt_token_ids) - num_tokens, None)
    pairs = zip(scored.prompt_token_ids[last], scored.prompt_logprobs[last], strict=True)
    return sum(entry[token_id].logprob for token_id, entry in pairs if entry is not None)


def tokens_of(output: RequestOutput, choice: CompletionOutput) -> list[int]:
    """Return prompt and answer without the end-of-sequence token."""
    is_ended = choice.finish_reason == "stop" and choice.stop_reason is None
    answer: Sequence[int] = choice.token_ids[:-1] if is_ended else choice.token_ids
    return [*output.prompt_token_ids, *answer]
