"""Refuses fields that no schema has by name, or reports them as ignored for a header.

A field that would change the answer elsewhere is in `REFUSED`; any other field has no effect here.
Fields that a schema has and that change nothing are in its `WITHOUT_EFFECT`; those that change
nothing with one value are in its `WITHOUT_EFFECT_AS`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from pagewire_shared.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that is refused.

    Attributes:
        neutral: Values that change nothing and are accepted; null always is.
        instead: What to use instead, for the message; "" for nothing.
    """

    neutral: tuple[Any, ...] = ()
    instead: str = ""


_GENERATION: Final[Mapping[str, Refused]] = {
    "audio": Refused(),
    "documents": Refused(([],), "put them into a message"),
    "guided_whitespace_pattern": Refused(),
    "kv_transfer_params": Refused((), "workers hand prompts over by themselves"),
    "logits_processors": Refused(([],), "use logit_bias, bad_words or allowed_token_ids"),
    "logprob_token_ids": Refused(([],), "use logprobs"),
    "lora_path": Refused(("",)),
    "mm_processor_kwargs": Refused(({},)),
    "modalities": Refused((["text"],)),
    "prompt_embeds": Refused(),
    "repetition_detection": Refused(),
    "suffix": Refused(("",)),
    "thinking_token_budget": Refused((), "use max_tokens"),
    "vllm_xargs": Refused(({},)),
}
CHAT: Final[Mapping[str, Refused]] = {
    **_GENERATION,
    "chat_template": Refused((), "start the server with another template"),
    "function_call": Refused(("none", "auto"), "use tool_choice"),
    "functions": Refused(([],), "use tools"),
    "moderation": Refused(),
    "verbosity": Refused(("medium",), "ask for it in a message"),
    "web_search_options": Refused(),
}
COMPLETION: Final[Mapping[str, Refused]] = {
    **_GENERATION,
    "chat_template": Refused(),
    "function_call": Refused(("none", "auto"), "use chat completions"),
    "functions": Refused(([],), "use chat completions"),
    "reasoning_effort": Refused((), "use chat completions"),
    "tool_choice": Refused(("none", "auto"), "use chat completions"),
    "tools": Refused(([],), "use chat completions"),
}
EMBEDDING: Final[Mapping[str, Refused]] = {
    "chat_template": Refused(),
    "lora_path": Refused(("",)),
    "mm_processor_kwargs": Refused(({},)),
    "tool_choice": Refused(("none", "auto")),
    "tools": Refused(([],)),
}
RESPONSES: Final[Mapping[str, Refused]] = {
    "background_options": Refused(),
    "best_of": Refused((1,)),
    "context_management": Refused(([],)),
    "conversation": Refused((), "use previous_response_id"),
    "image": Refused(),
    "moderation": Refused(),
    "n": Refused((1,), "send several requests"),
    "prompt": Refused((), "use input and instructions"),
    "response_format": Refused((), "use text.format"),
    "use_beam_search": Refused((False,)),
}
MESSAGE: Final[Mapping[str, Refused]] = {
    "audio": Refused(),
    "function_call": Refused((), "use tool_calls"),
}
STREAM_OPTIONS: Final[Mapping[str, Refused]] = {
    "continuous_usage_stats": Refused((False,), "use include_usage"),
}


def refuse(name: str, value: Any, refused: Mapping[str, Refused], place: str = "") -> None:
    """Raise InvalidRequestError if a field is refused and `value` would change something.

    Args:
        name: The field.
        value: Its value; null changes nothing.
        refused: Table of the body that it stands in.
        place: Where the body stands, such as "messages.0."; names the whole field.
    """
    rule = refused.get(name)
    if rule is None or value is None or value in rule.neutral:
        return
    hint = f"; {rule.instead}" if rule.instead else ""
    raise InvalidRequestError(
        f"{place}{name} is not supported{hint}",
        field=f"{place}{name}".partition(".")[0],
        code="unsupported_parameter",
    )


def unread_fields(body: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yield the names of the fields that a client gave and that have no effect, with dots for
    nesting: "user", "messages.refusal". Raises InvalidRequestError for one that is refused."""
    refused: Mapping[str, Refused] = getattr(body, "REFUSED", {})
    for name, value in (body.model_extra or {}).items():
        refuse(name, value, refused, prefix)
        if not _says_nothing(value) and name not in refused:
            yield prefix + name
    for name in getattr(body, "WITHOUT_EFFECT", ()):
        if not _says_nothing(getattr(body, name)):
            yield prefix + name
    for name, value in getattr(body, "WITHOUT_EFFECT_AS", {}).items():
        if getattr(body, name) == value:
            yield prefix + name
    for name in body.model_fields_set:
        value = getattr(body, name, None)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, BaseModel):
                yield from unread_fields(item, f"{prefix}{name}.")


def _says_nothing(value: Any) -> bool:
    return value is None or value == [] or value == {}
