"""Implements `echo` for HTTP and gRPC: the text before an answer, and answers that hold only the
prompt."""

from collections.abc import Sequence
from dataclasses import replace

from pagewire_frontend.prompts.generation_request import ChatPrompt, GenerationRequest, TextPrompt
from pagewire_frontend.session.events import Closed, Delta, Event, Finished, FinishReason


def echo_text(request: GenerationRequest, token_ids: Sequence[int]) -> str:
    """Return the text before the answer: the prompt, or the last turn of the assistant."""
    prompt = request.prompt
    if isinstance(prompt, ChatPrompt):
        last = prompt.messages[-1]
        return str(last["content"]) if last["role"] == "assistant" else ""
    if isinstance(prompt, TextPrompt) and request.params.truncate_prompt_tokens is None:
        return prompt.text
    return request.model.tokenizer.decode(token_ids, skip_special_tokens=False)


def without_tokens(end: Finished) -> Finished:
    """Return the end of a choice for a request that wants no tokens."""
    return Finished(end.choice, FinishReason.LENGTH)


def without_output(event: Event) -> Event | None:
    """Return the event for a request that wants no tokens; None for no event."""
    if isinstance(event, Delta):
        return None
    if isinstance(event, Finished):
        return without_tokens(event)
    if isinstance(event, Closed):
        return Closed(replace(event.usage, completion_tokens=0), event.timings)
    return event
