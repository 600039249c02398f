"""JSON Schemas of the gateway's answers, for /openapi.json. An optional field may be absent, and is
then not null."""

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_LABEL: Schema = {"type": ["string", "null"]}
_OBJECT: Schema = {"type": "object"}


def _object(required: Schema, **optional: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _constant(text: str) -> Schema:
    return {"type": "string", "const": text}


_IDS = _list(_COUNT)
_TIERS: Schema = {"type": "object", "additionalProperties": _COUNT}
_DURATION: Schema = {"type": "number", "minimum": 0}
_TIMELINE: Schema = {
    **_object(
        {
            "tokenize_ms": _DURATION,
            "queue_ms": _DURATION,
            "queue_ms_by_reason": {"type": "object", "additionalProperties": _DURATION},
            "paused_ms": _DURATION,
            "prefill_ms": _DURATION,
            "transfer_ms": _DURATION,
            "decode_ms": _DURATION,
            "transfer_bytes": _COUNT,
            "transport": {"enum": ["grpc", "shared_memory", None]},
            "num_preemptions": _COUNT,
            "num_migrations": _COUNT,
            "num_recoveries": _COUNT,
            "is_handed_off": {"type": "boolean"},
            "cached_tokens_by_tier": _TIERS,
        }
    ),
    "type": ["object", "null"],
}
_USAGE = _object(
    {"prompt_tokens": _COUNT, "completion_tokens": _COUNT, "total_tokens": _COUNT},
    prompt_tokens_details=_object({"cached_tokens": _COUNT}, cached_tokens_by_tier=_TIERS),
    completion_tokens_details=_object(
        {"accepted_prediction_tokens": _COUNT, "rejected_prediction_tokens": _COUNT}
    ),
    timeline=_list(_TIMELINE),
    weights_version=_TEXT,
)
_REASON: Schema = {"enum": ["stop", "length", "tool_calls", "content_filter", None]}
_ENDED: dict[str, Schema] = {
    "stop_reason": {"type": ["string", "integer"]},
    "token_ids": _IDS,
    "prompt_logprobs": _list({"type": ["object", "null"]}),
    "prompt_token_ids": _IDS,
}
_MAYBE: Schema = {"type": ["object", "null"]}
_HEAD: Schema = {"id": _TEXT, "created": _COUNT, "model": _TEXT}
_CALLS = _list(_object({"function": _OBJECT}, index=_COUNT, id=_TEXT, type=_constant("function")))
_SAID: dict[str, Schema] = {"tool_calls": _CALLS, "reasoning_content": _TEXT}


def _answer(kind: str, choice: Schema, *, has_usage: bool) -> Schema:
    required = {**_HEAD, "object": _constant(kind), "choices": _list(choice)}
    if has_usage:
        return _object({**required, "usage": _USAGE}, **_ENDED)
    return _object(required, usage={"anyOf": [_USAGE, {"type": "null"}]}, **_ENDED)


_CHAT_MESSAGE = _object({"role": _constant("assistant"), "content": _LABEL}, **_SAID)
_CHAT_CHOICE = _object(
    {"index": _COUNT, "message": _CHAT_MESSAGE, "finish_reason": _REASON},
    logprobs=_MAYBE,
    **_ENDED,
)
_CHAT_DELTA = _object(
    {
        "index": _COUNT,
        "delta": _object({}, role=_TEXT, content=_LABEL, **_SAID),
        "finish_reason": _REASON,
    },
    logprobs=_MAYBE,
    **_ENDED,
)
_TEXT_CHOICE = _object(
    {"index": _COUNT, "text": _TEXT, "logprobs": _MAYBE, "finish_reason": _REASON}, **_ENDED
)
_VECTOR = _object(
    {
        "object": _constant("embedding"),
        "index": _COUNT,
        "embedding": {"anyOf": [_TEXT, _list({"type": "number"})]},
    }
)

_ITEM = _object({"type": _TEXT})
_NUMBER: Schema = {"type": "number"}
_ROWS = _list({"anyOf": [_NUMBER, _list(_NUMBER)]})
_TOKENS_USED = _object({"prompt_tokens": _COUNT, "total_tokens": _COUNT})


def _pooled(item: Schema) -> Schema:
    return _object(
        {**_HEAD, "object": _constant("list"), "data": _list(item), "usage": _TOKENS_USED}
    )


SCHEMAS: dict[str, Schema] = {
    "Error": _object(
        {"error": _object({"message": _TEXT, "type": _TEXT, "param": _LABEL, "code": _LABEL})}
    ),
    "ChatCompletion": _answer("chat.completion", _CHAT_CHOICE, has_usage=True),
    "ChatCompletionChunk": _answer("chat.completion.chunk", _CHAT_DELTA, has_usage=False),
    "Completion": _answer("text_completion", _TEXT_CHOICE, has_usage=True),
    "CompletionChunk": _answer("text_completion", _TEXT_CHOICE, has_usage=False),
    "EmbeddingList": _object(
        {
            "object": _constant("list"),
            "data": _list(_VECTOR),
            "model": _TEXT,
            "usage": _TOKENS_USED,
        },
        id=_TEXT,
        created=_COUNT,
    ),
    "Model": _object(
        {
            "id": _TEXT,
            "object": _constant("model"),
            "created": _COUNT,
            "owned_by": _TEXT,
            "root": _TEXT,
        },
        max_model_len=_COUNT,
        parent=_TEXT,
    ),
    "Tokens": _object(
        {"count": _COUNT, "tokens": _IDS}, max_model_len=_COUNT, token_strs=_list(_TEXT)
    ),
    "ScoreList": _pooled(
        _object({"index": _COUNT, "object": _constant("score"), "score": _NUMBER})
    ),
    "PoolingList": _pooled(
        _object(
            {"index": _COUNT, "object": _constant("pooling"), "data": {"anyOf": [_TEXT, _ROWS]}}
        )
    ),
    "ClassList": _pooled(
        _object({"index": _COUNT, "label": _TEXT, "probs": _list(_NUMBER), "num_classes": _COUNT})
    ),
    "Ranking": _object(
        {
            "id": _TEXT,
            "model": _TEXT,
            "results": _list(
                _object(
                    {"index": _COUNT, "relevance_score": _NUMBER},
                    document=_object({"text": _TEXT}),
                )
            ),
            "usage": _TOKENS_USED,
            "meta": _OBJECT,
        }
    ),
    # OpenAI's API description has all fields; these are in every response.
    "Response": _object(
        {
            "id": _TEXT,
            "object": _constant("response"),
            "created_at": _COUNT,
            "model": _TEXT,
            "status": {
                "enum": [
                    "queued",
                    "in_progress",
                    "completed",
                    "incomplete",
                    "failed",
                    "cancelled",
                ]
            },
            "output": _list(_ITEM),
        }
    ),
    "ResponseEvent": _object({"type": _TEXT, "sequence_number": _COUNT}),
    "ResponseDeleted": _object(
        {"id": _TEXT, "object": _constant("response"), "deleted": {"const": True}}
    ),
    "ItemList": _object(
        {
            "object": _constant("list"),
            "data": _list(_ITEM),
            "first_id": _TEXT,
            "last_id": _TEXT,
            "has_more": {"type": "boolean"},
        }
    ),
    "Text": _object({"prompt": _TEXT}),
    "Status": _object({"status": _constant("ok")}),
    "Said": _TEXT,
    "Sleeping": _object({"is_sleeping": {"type": "boolean"}}),
    "Version": _object({"version": _TEXT}, grpc_port=_COUNT),
    "State": _object(
        {
            "version": _TEXT,
            "why_not_ready": _LABEL,
            "num_open_requests": _COUNT,
            "models": _list(
                _object(
                    {
                        "id": _TEXT,
                        "is_ready": {"type": "boolean"},
                        "num_workers": _COUNT,
                        "max_model_len": {"type": ["integer", "null"], "minimum": 0},
                        "has_chat_template": {"type": "boolean"},
                    }
                )
            ),
        }
    ),
}
SCHEMAS["WeightsOfWorkers"] = _object(
    {"workers": _list(_object({"worker": _TEXT, "version": _TEXT}))}
)
SCHEMAS["Traces"] = _object({"traces": _list(_object({"worker": _TEXT, "path": _TEXT}))})
SCHEMAS["ModelList"] = _object(
    {"object": _constant("list"), "data": _list({"$ref": "#/components/schemas/Model"})}
)

SCHEMAS["KeptEvent"] = {
    "anyOf": [
        {"$ref": f"#/components/schemas/{name}"}
        for name in ("ChatCompletionChunk", "CompletionChunk", "Error")
    ]
}

ANSWERS: dict[str, tuple[str | None, str | None]] = {
    "/v1/chat/completions": ("ChatCompletion", "ChatCompletionChunk"),
    "/v1/completions": ("Completion", "CompletionChunk"),
    "/v1/embeddings": ("EmbeddingList", None),
    "/score": ("ScoreList", None),
    "/v1/score": ("ScoreList", None),
    "/rerank": ("Ranking", None),
    "/v1/rerank": ("Ranking", None),
    "/v2/rerank": ("Ranking", None),
    "/pooling": ("PoolingList", None),
    "/classify": ("ClassList", None),
    "/v1/responses": ("Response", "ResponseEvent"),
    "/v1/responses/{response_id}": ("Response", "ResponseEvent"),
    "delete /v1/responses/{response_id}": ("ResponseDeleted", None),
    "/v1/responses/{response_id}/cancel": ("Response", None),
    "/v1/responses/{response_id}/input_items": ("ItemList", None),
    "/v1/streams/{stream_id}": (None, "KeptEvent"),
    "/v1/load_lora_adapter": ("Said", None),
    "/v1/unload_lora_adapter": ("Said", None),
    "/sleep": (None, None),
    "/wake_up": (None, None),
    "/is_sleeping": ("Sleeping", None),
    "/update_weights": ("WeightsOfWorkers", None),
    "/start_profile": (None, None),
    "/stop_profile": ("Traces", None),
    "/v1/models": ("ModelList", None),
    "/v1/models/{model_id}": ("Model", None),
    "/tokenize": ("Tokens", None),
    "/detokenize": ("Text", None),
    "/health": ("Status", None),
    "/ready": ("Status", None),
    "/ping": ("Status", None),
    "/live": ("Status", None),
    "/version": ("Version", None),
    "/state": ("State", None),
}
"""Schemas of the answer or None, and of the events of a stream or None. By path, or by method
and path where methods differ. An answer without both has no body."""
