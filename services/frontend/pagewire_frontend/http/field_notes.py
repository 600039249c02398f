"""Short descriptions of the fields of bodies, and one body per endpoint, for /openapi.json."""

from typing import Any, Final

from pagewire_shared.sampling.fields import FIELDS

_TURNS = [{"role": "user", "content": "Once upon a time"}]

EXAMPLES: Final[dict[str, Any]] = {
    "/v1/chat/completions": {"messages": _TURNS, "max_tokens": 64},
    "/v1/completions": {"prompt": "Once upon a time", "max_tokens": 64},
    "/v1/embeddings": {"input": "Once upon a time"},
    "/v1/responses": {"input": "Once upon a time", "max_output_tokens": 64},
    "/v1/score": {"queries": "What is a cat?", "documents": ["An animal", "A river"]},
    "/v1/rerank": {"query": "What is a cat?", "documents": ["An animal", "A river"]},
    "/pooling": {"input": "Once upon a time"},
    "/classify": {"input": "Once upon a time"},
    "/tokenize": {"prompt": "Once upon a time"},
    "/detokenize": {"tokens": [5, 6, 7]},
}
"""Path -> a body that a client may begin with."""

NOTES: Final = {
    "model": "Name of the model; may be left out where one is served",
    "messages": "The conversation, oldest message first",
    "prompt": "Text or token ids; several of either in a list",
    "input": "Text or token ids, several of either in a list; or the items of a conversation",
    "stream": "Sends the answer as events while it is generated",
    "stream_options": "With `stream` only",
    "include_usage": "One more event, at the end, has `usage`",
    "max_tokens": "Most tokens of the answer; without it the rest of the context",
    "max_completion_tokens": "The same as `max_tokens`",
    "max_output_tokens": "Most tokens of the answer; without it the rest of the context",
    "min_tokens": "Least tokens of the answer",
    "n": "Number of choices",
    "best_of": "Choices that are computed, of which the best `n` are returned",
    "temperature": "0 always takes the likeliest token; higher values vary more",
    "top_p": "Only the likeliest tokens that have this share together",
    "top_k": "Only this many of the likeliest tokens; 0 or -1 for all",
    "min_p": "Only tokens with this share of the likeliest token's probability",
    "seed": "The same seed and request give the same answer",
    "stop": "Texts that end the answer",
    "stop_token_ids": "Tokens that end the answer",
    "ignore_eos": "Goes on after an end-of-sequence token",
    "skip_special_tokens": "Leaves special tokens out of the text",
    "include_stop_str_in_output": "Shows the text that ended the answer",
    "presence_penalty": "Lowers the logits of tokens that the answer has",
    "frequency_penalty": "Lowers the logits of tokens by how often the answer has them",
    "repetition_penalty": "Lowers the logits of tokens that prompt or answer have; 1 for none",
    "logit_bias": "Token id to a number that is added to its logit",
    "allowed_token_ids": "Only these tokens",
    "bad_words": "Texts that the answer must not have",
    "logprobs": "Log-probabilities: true or false in a chat, a number in completions",
    "top_logprobs": "Alternatives that are shown with each token",
    "prompt_logprobs": "Alternatives that are shown with each token of the prompt",
    "use_beam_search": "Searches with `n` beams instead of drawing",
    "length_penalty": "Of beam search: above 1 prefers longer answers",
    "early_stopping": "Of beam search: when it ends",
    "truncate_prompt_tokens": "Only the last tokens of the prompt, this many",
    "echo": "Repeats the prompt before the answer",
    "return_token_ids": "Shows the ids of prompt and answer",
    "return_token_strs": "Shows the text of each token",
    "response_format": "`text`, `json_object`, or `json_schema` with a schema",
    "structured_outputs": "One of `json`, `regex`, `choice`, `grammar`, `json_object`",
    "tools": "Functions that the model may call",
    "tool_choice": "`auto`, `none`, `required`, or one function",
    "parallel_tool_calls": "Whether an answer may call several functions",
    "add_special_tokens": "Adds the tokenizer's own tokens, such as the beginning of a sequence",
    "add_generation_prompt": "Ends the prompt with the beginning of an answer",
    "continue_final_message": "Continues the last message instead of answering it",
    "chat_template_kwargs": "Values for the chat template",
    "include_reasoning": "Shows the reasoning of the model",
    "cache_salt": "Only requests with the same salt share cached KV blocks",
    "prediction": "What the answer is expected to be, for the most part",
    "priority": "Lower values are served first",
    "encoding_format": "`float` or `base64`",
    "dimensions": "Length of the vectors",
    "pooling": "How the hidden states of the tokens become one vector",
    "normalize": "Scales vectors to length 1",
    "queries": "One text, or as many as documents",
    "documents": "Texts that are compared with the query",
    "text_1": "Another name of `queries`",
    "text_2": "Another name of `documents`",
    "data_1": "Another name of `queries`",
    "data_2": "Another name of `documents`",
    "query": "The text that the documents are compared with",
    "top_n": "Only the best documents, this many",
    "return_documents": "Shows the documents with their scores",
    "max_tokens_per_doc": "Only the first tokens of each document, this many",
    "use_activation": "Turns scores into probabilities, as the model's files say by default",
    "task": "`embed`, `token_embed` or `classify`",
    "tokens": "Token ids",
    "instructions": "A system message before the input",
    "previous_response_id": "A response that this one continues",
    "store": "Keeps the response, so that others can continue it",
    "background": "Answers at once, and goes on in the background",
}
"""Name of a field -> one sentence, the same in all bodies that have the field."""


def described(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field with the note and the bounds of its name, if it has some."""
    parts = [part for part in (NOTES.get(name), _BOUNDS.get(name)) if part]
    if not parts or "description" in schema:
        return schema
    note = {"description": ". ".join(parts)}
    # Beside $ref a description is allowed from OpenAPI 3.1 on.
    return {**schema, **note}


def _bounds(low: float, high: float, *, is_open: bool) -> str:
    first = "More than" if is_open else "From"
    return f"{first} {low:g} to {high:g}"


# Bounds of whole numbers that only say what fits their wire form would be noise.
_BOUNDS: Final = {
    field.name: _bounds(*field.bounds, is_open=field.is_open)
    for field in FIELDS
    if field.bounds is not None
    and max(map(abs, field.bounds)) < 10_000
    and field.name != "logprobs"
}
