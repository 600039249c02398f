"""Describes how an answer is made that another frontend may have to make again."""

from dataclasses import dataclass, replace

from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_frontend.http.openai.answer_head import NOTHING_PINNED, PinnedUsage
from pagewire_frontend.prompts.generation_request import GenerationRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """One way of making an answer.

    Attributes:
        pinned_usage: What is known already of its token counts.
        must_be_held: Only go on with requests that a scheduler has, of a frontend that died.
        has_new_ids: Requests get other ids, as new ones; the answer shows its own all the same.
    """

    pins: Pins
    pinned_usage: PinnedUsage = NOTHING_PINNED
    must_be_held: bool = False
    has_new_ids: bool = False

    def applied(self, request: GenerationRequest, prompt: int) -> GenerationRequest:
        """Return the request of a prompt, with what is drawn for it."""
        params = request.params
        if params.seed is None:
            params = params.with_(seed=self.pins.seed(prompt))
        return replace(
            request,
            params=params,
            request_id=None if self.has_new_ids else self.pins.request_id(prompt),
            must_be_held=self.must_be_held,
            is_split=True,
        )
