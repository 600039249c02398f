"""docs/limits.md says what the code does: every number, every module, and the bounds themselves."""

import importlib.util
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pagewire_frontend.adapters import registry, store_client
from pagewire_frontend.chat import tool_use
from pagewire_frontend.config import FrontendConfig
from pagewire_frontend.engine import embedding, request_fit, tokenization
from pagewire_frontend.grpc_api import batch_call
from pagewire_frontend.http.body import json_body, json_reader
from pagewire_frontend.http.kept_streams import keys
from pagewire_frontend.http.openai import options as http_options
from pagewire_frontend.http.openai import schemas
from pagewire_frontend.http.responses import kept as responses_kept
from pagewire_frontend.http.responses import schemas as responses_schemas
from pagewire_frontend.http.server import bounded_protocol
from pagewire_frontend.models.template_arguments import MAX_ARGUMENTS
from pagewire_frontend.prompts import template_process
from pagewire_frontend.weights import inbox
from pagewire_kvstore.adapters.blob_keeper import MAX_BLOBS
from pagewire_kvstore.config import KvStoreConfig
from pagewire_scheduler.config import SchedulerConfig
from pagewire_scheduler.core.data.stream_limits import StreamLimits
from pagewire_scheduler.core.state.capacity import MAX_VECTOR_BYTES
from pagewire_scheduler.links import sleep_desk
from pagewire_shared.adapters.adapter_config import MAX_CONFIG_BYTES
from pagewire_shared.adapters.flag_values import MAX_NAME_CHARS
from pagewire_shared.adapters.tensor_header import (
    MAX_WEIGHT_BYTES,
    MOST_PER_TENSOR,
    AdapterBounds,
)
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.rpc import options as rpc_options
from pagewire_shared.sampling import beam, checks, pooling, priority, structured_outputs
from pagewire_shared.sampling.fields import FIELDS, SamplingField
from pagewire_shared.sampling.params import SamplingParams, field_names
from pagewire_shared.weights import version
from pagewire_worker.config import WorkerConfig
from pagewire_worker.grammars import mask_credit, mask_jobs

TABLE = Path(__file__).parents[4] / "docs" / "limits.md"
INT = 2**31 - 1
NUMBER = re.compile(r"(?<![\w-])-?\d+")


def rows() -> dict[str, tuple[str, str, str, str]]:
    """Return the cells of each row by its first."""
    lines = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {name.replace("`", ""): tuple(rest) for name, *rest in cells}  # type: ignore[misc]


def default(cls: type[Any], name: str) -> Any:
    return next(item.default for item in fields(cls) if item.name == name)


FRONTEND = {
    "body of a request": "max_body_size",
    "memory of texts that wait": "max_waiting_text_bytes",
    "requests open in a frontend": "max_open_requests",
    "requests open of an API key": "max_open_per_key",
    "requests waiting in a frontend": "max_waiting",
    "time of a request": "max_request_seconds",
    "time without a worker": "max_wait_seconds",
    "responses kept": "max_stored_responses",
    "bytes of responses kept": "max_stored_response_bytes",
    "age of responses kept": "max_stored_response_seconds",
    "age of kept streams": "stream_retention_seconds",
    "bytes of kept streams": "stream_journal_bytes",
    "recipes of streams of other frontends": "stream_journal_bytes",
    "age of such a recipe": "stream_retention_seconds",
    "content of adapters kept": "lora_store_bytes",
    "headers of a request": "max_header_bytes",
    "number of headers": "max_header_count",
    "path and query": "max_target_bytes",
    "time of the headers": "head_seconds",
    "time of a body": "body_seconds",
    "silence within a body": "body_idle_seconds",
    "silence between two requests": "keep_alive_seconds",
    "silence of a reader": "stall_seconds",
    "connections over HTTP": "max_connections",
    "idle connections of an address": "max_idle_per_address",
}
SCHEDULER = {
    "sequences waiting for a model": "max_num_waiting",
    "tokens waiting for a model": "max_waiting_tokens",
    "memory of a cell's requests": "max_request_bytes",
}
BOUNDED = {field.name: field for field in FIELDS if field.bounds and field.name != "logprobs"}


def numbers(field: SamplingField) -> list[float]:
    """Return the bounds and the default of a sampling parameter."""
    value = getattr(SamplingParams(), field.name)
    return [*(field.bounds or ()), *(() if value is None else (value,))]


# The numbers of the second and third column, in order.
NUMBERS: dict[str, list[float]] = {
    **{name: numbers(field) for name, field in BOUNDED.items()},
    "n": [1, checks.MAX_CHOICES, beam.MAX_BEAM_WIDTH, SamplingParams().n],
    "temperature": [0, 2, 0, 1, SamplingParams().temperature],
    "top_k": [-1, INT, 0, -1, SamplingParams().top_k],
    "max_tokens": [1, INT, 0, http_options.COMPLETION_MAX_TOKENS],
    "logprobs, top_logprobs": [0, checks.MAX_LOGPROBS],
    "length_penalty": [-beam.MAX_LENGTH_PENALTY, beam.MAX_LENGTH_PENALTY, 1],
    "stop": [checks.MAX_STOP_STRINGS, checks.MAX_STOP_CHARS],
    "stop_token_ids": [checks.MAX_STOP_TOKEN_IDS],
    "logit_bias": [checks.MAX_LOGIT_BIAS, -checks.MAX_BIAS, checks.MAX_BIAS],
    "allowed_token_ids": [checks.MAX_ALLOWED_TOKEN_IDS],
    "bad_words": [checks.MAX_BAD_WORDS, checks.MAX_BAD_WORD_CHARS],
    "bad_token_sequences": [checks.MAX_BAD_SEQUENCES, checks.MAX_BAD_SEQUENCE_TOKENS],
    "truncate_prompt_tokens": [-1, 1],
    "structured_outputs.json": [
        structured_outputs.MAX_SCHEMA_BYTES,
        structured_outputs.MAX_SCHEMA_DEPTH,
        structured_outputs.MAX_SCHEMA_NODES,
    ],
    "structured_outputs.regex": [structured_outputs.MAX_REGEX_CHARS],
    "structured_outputs.choice": [
        structured_outputs.MAX_CHOICES,
        structured_outputs.MAX_CHOICE_CHARS,
    ],
    "structured_outputs.grammar": [structured_outputs.MAX_GRAMMAR_BYTES],
    "idempotency-key": [1, keys.MAX_KEY_BYTES],
    "idempotency keys of a frontend": [keys.MAX_KEYS],
    "CPU time of slow masks of a request": [
        mask_jobs.CREDIT_SECONDS,
        mask_jobs.MASK_SECONDS * 1e3,
    ],
    "CPU time of masks of a tenant, beside others": [
        mask_credit.SHARE * 100,
        mask_credit.CHEAP_SECONDS * 1e6,
    ],
    "chat_template_kwargs": [MAX_ARGUMENTS],
    # 0-9 is no number.
    "tools": [tool_use.MAX_TOOLS, 1, tool_use.MAX_NAME_CHARS, 0],
    "parameters of a tool": [],
    "requests per minute of an API key": [],
    "tokens per minute of an API key": [],
    "KV cache of a tenant in each worker, without what running sequences hold": [],
    "grammar of forced or strict calls": [structured_outputs.MAX_GRAMMAR_BYTES],
    "prompt": [schemas.MAX_PROMPTS],
    "input of embeddings": [embedding.MAX_INPUTS],
    "input of /pooling and /classify": [embedding.MAX_INPUTS],
    "items of GenerateBatch": [1, batch_call.MAX_ITEMS, batch_call.MAX_BYTES],
    "queries and documents": [embedding.MAX_INPUTS],
    "vectors of all tokens of an input": [MAX_VECTOR_BYTES, 4],
    "input of responses": [responses_schemas.MAX_INPUT_ITEMS],
    "metadata": [
        responses_schemas.MAX_METADATA_PAIRS,
        responses_schemas.MAX_METADATA_KEY_CHARS,
        responses_schemas.MAX_METADATA_VALUE_CHARS,
    ],
    "limit of input items": [1, responses_kept.MAX_PAGE, responses_kept.DEFAULT_PAGE],
    "lora_name": [MAX_NAME_CHARS],
    "adapters by name": [registry.MAX_ADAPTERS],
    "loads of adapters that wait": [registry.MAX_LOADS],
    "content of adapters in a KV store": [
        KvStoreConfig(disk_path="/x").max_adapter_bytes,
        MAX_BLOBS,
        KvStoreConfig().max_adapter_bytes,
    ],
    "adapters that wait to be written to a KV store": [store_client.MAX_WAITING],
    "calls to sleep and to wake that wait for workers": [sleep_desk.MAX_CALLS],
    "version of new weights": [version.MAX_LABEL],
    "path of new weights": [version.MAX_PATH],
    "new weights that are sent": [
        inbox.MAX_TENSORS,
        default(FrontendConfig, "weights_dir_bytes"),
    ],
    "weights of an adapter": [MAX_WEIGHT_BYTES],
    "header of these weights": [
        AdapterBounds().max_header_bytes,
        AdapterBounds().max_tensors,
        *(MOST_PER_TENSOR[character] for character in (b",", b"[", b"{")),
    ],
    "experts that a router chooses, embedding and logits of an adapter": [
        default(WorkerConfig, "lora_memory") // default(WorkerConfig, "max_loras")
    ],
    "adapter_config.json": [MAX_CONFIG_BYTES],
    "prompt and answer": [],
    "tokens of a sequence": [StreamLimits().longest_sequence(16), 16, 5, 4],
    "a request besides its tokens": [StreamLimits().max_condition_bytes],
    "priority": [priority.MIN_PRIORITY, priority.MAX_PRIORITY, 0],
    "dimensions": [1, pooling.MAX_DIMENSIONS],
    "text of a prompt": [],
    "rendering a chat template": [
        template_process.LIMIT_SECONDS,
        template_process.MEMORY_BYTES,
        template_process.MAX_TEXT_CHARS,
    ],
    "values of a body": [json_body.MAX_COMMAS, json_body.MAX_NAMES, json_body.MAX_CONTAINERS],
    "large bodies that wait": [json_reader.LARGE_BYTES, json_reader.MAX_WAITING_BYTES],
    "token ids of a request over gRPC": [request_fit.MAX_PROMPT_IDS],
    "prediction": [request_fit.MAX_PREDICTION_CHARS],
    "text of /tokenize": [tokenization.MAX_TEXT_CHARS],
    "tokens of /detokenize": [tokenization.MAX_TOKENS],
    "texts waiting for the tokenizer": [tokenization.MAX_WAITING],
    "requests pipelined on a connection": [bounded_protocol.MAX_PIPELINED],
    "calls over gRPC that are not accepted yet": [
        rpc_options.MAX_PENDING_CALLS,
        rpc_options.PENDING_CALL_BYTES,
    ],
    "message over gRPC": [rpc_options.CONTROL_MESSAGE_BYTES],
    **{row: [default(FrontendConfig, name)] for row, name in FRONTEND.items()},
    "idle connections of an address": [0, default(FrontendConfig, "max_idle_per_address")],
    **{row: [default(SchedulerConfig, name)] for row, name in SCHEDULER.items()},
}


def test_every_row_is_checked_and_every_check_has_a_row():
    assert sorted(rows()) == sorted(NUMBERS)


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_numbers_are_those_of_the_code(name):
    bound, fallback, module, status = rows()[name]
    assert [int(text) for text in NUMBER.findall(f"{bound} | {fallback}")] == NUMBERS[name]
    assert importlib.util.find_spec(module.strip("`")) is not None
    codes = ("400", "404", "408", "413", "414", "429", "431", "503", "504")
    assert status in (*codes, "RESOURCE_EXHAUSTED", "-")


def test_every_field_of_sampling_with_a_bound_has_a_row():
    unbounded = {
        "ignore_eos",
        "skip_special_tokens",
        "include_stop_str_in_output",
        "use_beam_search",
        "early_stopping",
        "structured_outputs",
    }
    named = {part for row in rows() for part in row.split(", ")}
    assert set(field_names()) - unbounded <= named


SCALARS = re.compile(r"(above )?(-?\d+) to (-?\d+)")


@pytest.mark.parametrize(
    "name", [*sorted(BOUNDED.keys() - {"max_tokens"}), "logprobs, top_logprobs"]
)
def test_the_bounds_hold(name):
    found = SCALARS.match(rows()[name][0])
    assert found is not None
    is_open, least, most = bool(found[1]), int(found[2]), int(found[3])
    field = name.split(",")[0]

    def params(value: float) -> SamplingParams:
        return SamplingParams(max_tokens=None, **{field: value})

    params(most)
    params(least + 1e-6 if is_open else least)
    for value in (most + 1, least if is_open else least - 1):
        with pytest.raises(InvalidRequestError) as caught:
            params(value)
        assert caught.value.field == field


LISTS: dict[str, Any] = {
    "stop": lambda count, size: ("x" * size,) * count,
    "bad_words": lambda count, size: ("x" * size,) * count,
    "stop_token_ids": lambda count: tuple(range(count)),
    "allowed_token_ids": lambda count: tuple(range(count)),
    "logit_bias": lambda count, _, most: dict.fromkeys(range(count), most),
    "bad_token_sequences": lambda count, size: ((1,) * size,) * count,
}


@pytest.mark.parametrize("field", sorted(LISTS))
def test_the_sizes_hold(field):
    sizes = [int(size) for size in NUMBER.findall(rows()[field][0])]
    SamplingParams(**{field: LISTS[field](*sizes)})
    for index, size in enumerate(sizes):
        if size < 0:
            continue
        larger = [*sizes[:index], size + 1, *sizes[index + 1 :]]
        with pytest.raises(InvalidRequestError) as caught:
            SamplingParams(**{field: LISTS[field](*larger)})
        assert caught.value.field == field
