"""Errors in the words of the body that caused them. Pure."""

from pagewire_frontend.http.openai.schemas import ChatBody, GenerationBody
from pagewire_frontend.http.openai.structured import given_field
from pagewire_shared.errors import PagewireError
from pagewire_shared.sampling.structured_outputs import FIELD


def as_given(error: PagewireError, body: GenerationBody) -> PagewireError:
    """Return `error` with its field, also in the message, as the body calls it."""
    names = {FIELD: given_field(body), "bad_token_sequences": "bad_words"}
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    given = names.get(error.field or "")
    if given is not None and given != error.field:
        error.message = error.message.replace(str(error.field), given)
        error.field = given
    return error
