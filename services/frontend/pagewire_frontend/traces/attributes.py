"""The attributes of a request's span: the conventions for generative models, and the names that
vLLM gives its own (vllm/tracing.py), so that panels made for it show these, too."""

from pagewire_frontend.traces.request_record import RequestRecord
from pagewire_frontend.traces.stages import Attributes, AttributeValue


def request_attributes(record: RequestRecord) -> Attributes:
    """Return the attributes; texts and tokens are not among them."""
    num_tokens = sum(choice.num_tokens for choice in record.choices)
    reasons = tuple(choice.reason for choice in record.choices if choice.reason)
    found: dict[str, AttributeValue | None] = {
        # https://opentelemetry.io/docs/specs/semconv/gen-ai/
        "gen_ai.operation.name": "text_completion" if record.max_tokens else "embeddings",
        "gen_ai.request.model": record.adapter or record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.request.max_tokens": record.max_tokens,
        "gen_ai.request.temperature": record.temperature,
        "gen_ai.request.top_p": record.top_p,
        "gen_ai.response.finish_reasons": reasons,
        "gen_ai.usage.input_tokens": record.num_prompt,
        "gen_ai.usage.output_tokens": num_tokens,
        # As vLLM.
        "gen_ai.request.id": record.label or record.request_id.hex(),
        "gen_ai.request.n": len(record.choices),
        "gen_ai.usage.num_sequences": len(record.choices),
        "gen_ai.usage.prompt_tokens": record.num_prompt,
        "gen_ai.usage.completion_tokens": num_tokens,
        "gen_ai.latency.e2e": record.seconds,
        "gen_ai.latency.time_to_first_token": _since_arrival(record),
        **_latencies(record),
        "pagewire.request_id": record.request_id.hex(),
        "pagewire.cached_tokens": record.num_cached,
        "pagewire.resubmits": record.num_resubmits,
        "pagewire.outcome": record.outcome,
    }
    return {name: value for name, value in found.items() if value is not None}


def _since_arrival(record: RequestRecord) -> float | None:
    return None if record.first_at is None else record.first_at - record.arrived_at


def _latencies(record: RequestRecord) -> dict[str, float]:
    """Return those of the first choice, as its scheduler reports them."""
    first = record.choices[0]
    if first.cell is None:
        return {}
    prefill = first.cell.prefill_seconds
    decode = 0.0
    if first.first_at is not None and first.last_at is not None:
        decode = first.last_at - first.first_at
    return {
        "gen_ai.latency.time_in_queue": first.cell.queue_seconds,
        "gen_ai.latency.time_in_model_prefill": prefill,
        "gen_ai.latency.time_in_model_decode": decode,
        "gen_ai.latency.time_in_model_inference": prefill + decode,
    }
