"""The options of a body that decide what its answer shows."""

from dataclasses import dataclass

from pagewire_frontend.http.body_fields import given_sampling
from pagewire_frontend.http.openai.options import is_echo_alone
from pagewire_frontend.http.openai.schemas import ChatBody, CompletionBody
from pagewire_shared.sampling.fields import HttpBodies


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOptions:
    """The parts of an answer that a client wants to see.

    Attributes:
        num_logprobs: Alternatives per token of the answer; None for no log-probabilities.
        num_prompt_logprobs: The same for the prompt.
        has_token_ids: The token ids of prompt and answer.
        has_ids_as_tokens: Log-probabilities name tokens by id, as "token_id:7".
        has_echo: The prompt's text before the answer's.
        has_output: The answer itself; without, only the prompt is shown.
        has_usage_chunk: A stream ends with token counts.
        has_reasoning: The model's reasoning before its answer.
    """

    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None
    has_token_ids: bool = False
    has_ids_as_tokens: bool = False
    has_echo: bool = False
    has_output: bool = True
    has_usage_chunk: bool = False
    has_reasoning: bool = True

    @property
    def scores_prompt(self) -> bool:
        """Whether log-probabilities of prompts are shown: up to some MB, and seconds of work."""
        is_scored_echo = self.has_echo and self.num_logprobs is not None
        return self.num_prompt_logprobs is not None or is_scored_echo


def of_chat(body: ChatBody) -> ResponseOptions:
    """Return the options of a chat body, which is checked already."""
    return ResponseOptions(
        num_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        num_prompt_logprobs=given_sampling(body, HttpBodies.OPENAI).get("prompt_logprobs"),
        has_token_ids=bool(body.return_token_ids),
        has_ids_as_tokens=bool(body.return_tokens_as_token_ids),
        has_echo=bool(body.echo),
        has_usage_chunk=body.wants_usage_chunk,
        has_reasoning=body.include_reasoning is not False,
    )


def of_completion(body: CompletionBody) -> ResponseOptions:
    """Return the options of a completion body, which is checked already."""
    return ResponseOptions(
        num_logprobs=body.logprobs,
        num_prompt_logprobs=given_sampling(body, HttpBodies.OPENAI).get("prompt_logprobs"),
        has_token_ids=bool(body.return_token_ids),
        has_ids_as_tokens=bool(body.return_tokens_as_token_ids),
        has_echo=bool(body.echo),
        has_output=not is_echo_alone(body),
        has_usage_chunk=body.wants_usage_chunk,
    )
