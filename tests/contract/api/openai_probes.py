"""What becomes of each field of OpenAI's bodies, with a body that shows it.

A field that is not here shares the outcome of the one that it stands in.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

Outcome = Literal["honoured", "refused", "ignored"]
Json = dict[str, Any]

FUNCTION: Final = {"name": "look", "description": "Looks", "parameters": {"type": "object"}}
TOOLS: Final = [{"type": "function", "function": FUNCTION}]
CALL: Final = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SCHEMA: Final = {"name": "word", "schema": {"type": "string"}}


@dataclass(frozen=True)
class Probe:
    """A field in a body.

    Attributes:
        outcome: What becomes of it.
        fields: Fields of the body besides those that it needs.
        param: Field that a refusal names; the first part of the name when "".
    """

    outcome: Outcome
    fields: Json
    param: str = ""


def honoured(**fields: Any) -> Probe:
    """Return a probe of a field that has an effect."""
    return Probe("honoured", fields)


def refused(param: str = "", **fields: Any) -> Probe:
    """Return a probe of a field that is refused by name."""
    return Probe("refused", fields, param)


def ignored(**fields: Any) -> Probe:
    """Return a probe of a field that is named in the header."""
    return Probe("ignored", fields)


def turn(**message: Any) -> Json:
    """Return messages with one more turn."""
    return {"messages": [{"role": "user", "content": "hi", **message}]}


def said(**message: Any) -> Json:
    """Return messages with an earlier answer."""
    earlier = {"role": "assistant", "content": "ho", **message}
    return {"messages": [{"role": "user", "content": "hi"}, earlier]}


def part(**fields: Any) -> Json:
    """Return messages with one content part."""
    return turn(content=[fields])


def form(**schema: Any) -> Json:
    """Return a response_format with a schema."""
    return {"response_format": {"type": "json_schema", "json_schema": {**SCHEMA, **schema}}}


SHARED: Final[dict[str, Probe]] = {
    "frequency_penalty": honoured(frequency_penalty=0.5),
    "logit_bias": honoured(logit_bias={"5": 1}),
    "max_tokens": honoured(max_tokens=3),
    "model": honoured(model="tiny"),
    "n": honoured(n=2),
    "presence_penalty": honoured(presence_penalty=0.5),
    "seed": honoured(seed=3),
    "stop": honoured(stop=["ü"]),
    "stream": honoured(stream=True),
    "stream_options": honoured(stream=True, stream_options={"include_usage": True}),
    "stream_options.include_obfuscation": ignored(
        stream=True, stream_options={"include_obfuscation": True}
    ),
    "temperature": honoured(temperature=0.5),
    "top_p": honoured(top_p=0.5),
    "user": ignored(user="me"),
}

CHAT: Final[dict[str, Probe]] = {
    **SHARED,
    "audio": refused(audio={"voice": "a", "format": "wav"}),
    "function_call": refused(function_call={"name": "look"}),
    "functions": refused(functions=[FUNCTION]),
    "logprobs": honoured(logprobs=True),
    "max_completion_tokens": honoured(max_completion_tokens=3),
    "messages": honoured(**turn()),
    "messages.audio": refused("messages", **said(audio={"id": "a"})),
    "messages.content": honoured(**part(type="text", text="ho")),
    "messages.content.file": refused("messages", **part(type="file", file={"file_id": "f"})),
    "messages.content.image_url": refused(
        "messages", **part(type="image_url", image_url={"url": "data:"})
    ),
    "messages.content.input_audio": refused(
        "messages", **part(type="input_audio", input_audio={"data": "", "format": "wav"})
    ),
    "messages.content.prompt_cache_breakpoint": ignored(
        **part(type="text", text="hi", prompt_cache_breakpoint={"mode": "auto"})
    ),
    "messages.content.refusal": refused("messages", **said(content=[{"type": "refusal"}])),
    "messages.function_call": refused(
        "messages", **said(function_call={"name": "look", "arguments": "{}"})
    ),
    "messages.name": ignored(**turn(name="Ann")),  # the template does not read it
    "messages.refusal": ignored(**said(refusal="no")),
    "messages.role": honoured(**turn(role="user")),
    "messages.tool_call_id": honoured(
        messages=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "x"},
        ]
    ),
    "messages.tool_calls": honoured(**said(tool_calls=[CALL])),
    "messages.tool_calls.custom": refused(
        "messages", **said(tool_calls=[{"id": "c", "type": "custom", "custom": {"name": "look"}}])
    ),
    "metadata": ignored(metadata={"a": "b"}),
    "modalities": refused(modalities=["text", "audio"]),
    "moderation": refused(moderation={"model": "m"}),
    "parallel_tool_calls": honoured(tools=TOOLS, tool_choice="required", parallel_tool_calls=False),
    "prediction": honoured(prediction={"type": "content", "content": "x"}),
    "prompt_cache_key": ignored(prompt_cache_key="k"),
    "prompt_cache_options": ignored(prompt_cache_options={"mode": "auto"}),
    "prompt_cache_retention": ignored(prompt_cache_retention="24h"),
    "reasoning_effort": ignored(reasoning_effort="low"),  # the template does not read it
    "response_format": honoured(**form(strict=True)),
    "response_format.json_schema.strict": ignored(**form(strict=False)),
    "response_format.json_schema.description": ignored(**form(description="A word")),
    "safety_identifier": ignored(safety_identifier="s"),
    "service_tier": ignored(service_tier="flex"),
    "store": ignored(store=True),
    "tool_choice": honoured(
        tools=TOOLS, tool_choice={"type": "function", "function": {"name": "look"}}
    ),
    "tool_choice.allowed_tools": refused(
        tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}
    ),
    "tool_choice.custom": refused(
        tools=TOOLS, tool_choice={"type": "custom", "custom": {"name": "look"}}
    ),
    "tools": honoured(tools=TOOLS, tool_choice="required"),
    "tools.custom": refused(tools=[{"type": "custom", "custom": {"name": "look"}}]),
    "top_logprobs": honoured(logprobs=True, top_logprobs=2),
    "verbosity": refused(verbosity="low"),
    "web_search_options": refused(web_search_options={}),
}

COMPLETIONS: Final[dict[str, Probe]] = {
    **SHARED,
    "best_of": honoured(best_of=2),
    "echo": honoured(echo=True),
    "logprobs": honoured(logprobs=1),
    "prompt": honoured(prompt="hi"),
    "suffix": refused(suffix="x"),
}

EMBEDDINGS: Final[dict[str, Probe]] = {
    "dimensions": honoured(dimensions=2),
    "encoding_format": honoured(encoding_format="base64"),
    "input": honoured(input="hi"),
    "model": honoured(model="tiny"),
    "user": ignored(user="me"),
}

_RESPONSE_TOOL: Final = {"type": "function", "name": "look", "parameters": {"type": "object"}}

RESPONSES: Final[dict[str, Probe]] = {
    **{name: SHARED[name] for name in ("model", "stream", "temperature", "top_p", "user")},
    "access_programs": ignored(access_programs={"cyber": "x"}),
    "background": honoured(background=True),
    "background_options": refused(background_options={"completion_window": "24h"}),
    "context_management": refused(context_management=[{"type": "compaction"}]),
    "conversation": refused(conversation="conv_1"),
    "image": refused(image={"context_compression": "auto"}),
    "include": honoured(include=["message.output_text.logprobs"]),
    "input": honoured(input="hi"),
    "instructions": honoured(instructions="Be short"),
    "max_output_tokens": honoured(max_output_tokens=20),
    "max_tool_calls": ignored(max_tool_calls=3),
    "metadata": honoured(metadata={"a": "b"}),
    "moderation": refused(moderation={"model": "m"}),
    "parallel_tool_calls": honoured(
        tools=[_RESPONSE_TOOL], tool_choice="required", parallel_tool_calls=False
    ),
    "previous_response_id": Probe("refused", {"previous_response_id": "resp_1"}),
    "prompt": refused(prompt={"id": "p"}),
    "prompt_cache_key": ignored(prompt_cache_key="k"),
    "prompt_cache_options": ignored(prompt_cache_options={"mode": "auto"}),
    "prompt_cache_retention": ignored(prompt_cache_retention="24h"),
    "reasoning": honoured(reasoning={"summary": "auto"}),
    "reasoning.context": ignored(reasoning={"context": "auto"}),
    "reasoning.effort": ignored(reasoning={"effort": "low"}),  # the template does not read it
    "reasoning.mode": ignored(reasoning={"mode": "auto"}),
    "safety_identifier": ignored(safety_identifier="s"),
    "service_tier": ignored(service_tier="flex"),
    "store": honoured(store=False),
    "stream_options": ignored(stream=True, stream_options={"include_obfuscation": True}),
    "text": honoured(text={"format": {"type": "json_schema", **SCHEMA}}),
    "text.format.description": ignored(
        text={"format": {"type": "json_schema", **SCHEMA, "description": "A word"}}
    ),
    "text.format.strict": ignored(
        text={"format": {"type": "json_schema", **SCHEMA, "strict": False}}
    ),
    "text.verbosity": refused(text={"verbosity": "low"}),
    "tool_choice": honoured(
        tools=[_RESPONSE_TOOL], tool_choice={"type": "function", "name": "look"}
    ),
    "tools": honoured(tools=[_RESPONSE_TOOL], tool_choice="required"),
    "top_logprobs": honoured(top_logprobs=2),
    "truncation": refused(truncation="auto"),
}

VLLM_CHAT: Final[dict[str, Probe]] = {
    "chat_template": refused(chat_template="{{ x }}"),
    "chat_template_kwargs.mood": ignored(chat_template_kwargs={"mood": "x"}),
    "continuous_usage_stats": Probe(
        "refused",
        {"stream": True, "stream_options": {"continuous_usage_stats": True}},
        "stream_options",
    ),
    "documents": refused(documents=[{"text": "x"}]),
    "guided_decoding_backend": ignored(guided_decoding_backend="xgrammar"),
    "kv_transfer_params": refused(kv_transfer_params={"a": 1}),
    "logits_processors": refused(logits_processors=["x"]),
    "logprob_token_ids": refused(logprob_token_ids=[1]),
    "lora_path": refused(lora_path="x"),
    "mm_processor_kwargs": refused(mm_processor_kwargs={"a": 1}),
    "prompt_embeds": refused(prompt_embeds="x"),
    "request_id": ignored(request_id="x"),
    "return_tokens_as_token_ids": honoured(logprobs=True, return_tokens_as_token_ids=True),
    "temprature": ignored(temprature=0.5),
    "thinking_token_budget": refused(thinking_token_budget=5),
    "vllm_xargs": refused(vllm_xargs={"a": 1}),
}

BODIES: Final[dict[str, tuple[str, Json, dict[str, Probe]]]] = {
    "chat": ("/v1/chat/completions", turn(), CHAT),
    "completions": ("/v1/completions", {"prompt": "hi"}, COMPLETIONS),
    "embeddings": ("/v1/embeddings", {"input": "hi"}, EMBEDDINGS),
    "responses": ("/v1/responses", {"input": "hi"}, RESPONSES),
}
"""Path, needed fields and probes of each body."""


def probe_of(field: str, probes: dict[str, Probe]) -> Probe | None:
    """Return the probe of a field, or of the closest one that it stands in."""
    while field and field not in probes:
        field = field.rpartition(".")[0]
    return probes.get(field)
