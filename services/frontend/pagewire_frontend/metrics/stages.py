"""Metrics of the stages of a choice, of request lengths, preemptions and transfers. Counted when a
choice or a request ends, never per token."""

from collections.abc import Sequence
from functools import cache

from prometheus_client import Counter, Histogram

from pagewire_frontend.metrics import buckets as bounds
from pagewire_frontend.metrics.timeline import CachedTiers, CellTimeline
from pagewire_shared.kv.tier import STORE_TIERS, WORKER_TIER, cache_label
from pagewire_shared.kv.transport import KvTransport

_MODEL = ["model"]


def _histogram(name: str, text: str, buckets: Sequence[float] = bounds.STAGE) -> Histogram:
    return Histogram(name, text, _MODEL, buckets=buckets)


_QUEUE = _histogram(
    "pagewire_queue_seconds", "From a choice's receipt by the scheduler to its first step"
)
_PREFILL = _histogram("pagewire_prefill_seconds", "Computing the prompt")
_DECODE = _histogram(
    "pagewire_decode_seconds", "From the first tokens of a choice to its last, as they arrive here"
)
_INFERENCE = _histogram("pagewire_inference_seconds", "Both together: prefill and decode")
_TRANSFER = _histogram(
    "pagewire_transfer_seconds", "Waiting for KV blocks, of choices for which any came"
)
_TOKENIZE = _histogram(
    "pagewire_tokenize_seconds", "Rendering and tokenizing a prompt", bounds.TOKENIZE
)
_PER_TOKEN = _histogram(
    "pagewire_time_per_output_token_seconds",
    "Mean time between the tokens of a choice, of those of at least two",
    bounds.TOKEN,
)
_PROMPT_LENGTH = _histogram("pagewire_request_prompt_tokens", "Length of prompts", bounds.LENGTH)
_OUTPUT_LENGTH = _histogram(
    "pagewire_request_generation_tokens", "Length of choices", bounds.LENGTH
)
_CHOICES = _histogram("pagewire_request_choices", "Choices asked for", bounds.CHOICES)
_MAX_TOKENS = _histogram(
    "pagewire_request_max_tokens", "Tokens that a choice may have at most", bounds.LENGTH
)
_PREEMPTIONS = Counter("pagewire_preemptions", "Choices that gave way to others", _MODEL)
_MIGRATIONS = Counter("pagewire_migrations", "Choices moved to another worker", _MODEL)
_HANDED_OFF = Counter(
    "pagewire_handed_off_choices", "Choices whose prompt another worker computed", _MODEL
)
_TRANSFER_BYTES = Counter(
    "pagewire_transfer_bytes", "Bytes of KV blocks that were moved", ["model", "transport"]
)
_QUERIED = Counter(
    "pagewire_prefix_queried_tokens", "Tokens of prompts that were looked up in caches", _MODEL
)
_FOUND = Counter(
    "pagewire_prefix_tokens", "Those that were there, by the tier of the cache", ["model", "tier"]
)
_NOT_IN_WORKER = Counter(
    "pagewire_prefix_not_in_worker_tokens", "Those that the worker's own cache did not have", _MODEL
)

MEASURED = (
    *(_QUEUE, _PREFILL, _DECODE, _INFERENCE, _PER_TOKEN),
    *(_PROMPT_LENGTH, _OUTPUT_LENGTH, _CHOICES, _MAX_TOKENS),
    *(_PREEMPTIONS, _QUERIED, _FOUND, _NOT_IN_WORKER),
)
"""Metrics that are shown under vLLM's names, too."""

STORE = "store"
"""Label of bytes that came from a KV store, and not from a worker."""


class StageMetrics:
    """The stage metrics of one model."""

    def __init__(self, model: str) -> None:
        self._model = model
        # Looked up once: a look-up takes as long as counting does.
        self._queue, self._prefill = _QUEUE.labels(model), _PREFILL.labels(model)
        self._decode, self._inference = _DECODE.labels(model), _INFERENCE.labels(model)
        self._transfer, self._tokenize = _TRANSFER.labels(model), _TOKENIZE.labels(model)
        self._per_token = _PER_TOKEN.labels(model)
        self._prompt_length = _PROMPT_LENGTH.labels(model)
        self._output_length = _OUTPUT_LENGTH.labels(model)
        self._choices, self._max_tokens = _CHOICES.labels(model), _MAX_TOKENS.labels(model)
        self._preemptions = _PREEMPTIONS.labels(model)
        self._migrations = _MIGRATIONS.labels(model)
        self._handed_off = _HANDED_OFF.labels(model)
        self._queried = _QUERIED.labels(model)
        self._not_in_worker = _NOT_IN_WORKER.labels(model)
        for tier in (WORKER_TIER, *STORE_TIERS):
            _FOUND.labels(model, cache_label(tier))
        for transport in (*(one.value for one in KvTransport), STORE):
            _TRANSFER_BYTES.labels(model, transport)

    def looked_up(self, num_prompt: int, num_cached: int, tiers: CachedTiers) -> None:
        """Count a cache look-up of a prompt. Without `tiers` all cached tokens count as the
        worker's. Schedulers may report any number."""
        reported = tiers or {WORKER_TIER: num_cached}
        self._queried.inc(num_prompt)
        self._not_in_worker.inc(max(0, num_prompt - reported.get(WORKER_TIER, 0)))
        for tier, num_tokens in reported.items():
            _FOUND.labels(self._model, cache_label(tier)).inc(num_tokens)

    def preempted(self, count: int) -> None:
        """Count preemptions since the last report."""
        self._preemptions.inc(count)

    def choice_ended(self, cell: CellTimeline, decode_seconds: float, num_tokens: int) -> None:
        """Count a choice of `num_tokens` that ended by itself."""
        self._queue.observe(cell.queue_seconds)
        self._prefill.observe(cell.prefill_seconds)
        self._inference.observe(cell.prefill_seconds + decode_seconds)
        if num_tokens:
            self._decode.observe(decode_seconds)
            self._output_length.observe(num_tokens)
        if num_tokens > 1:
            self._per_token.observe(decode_seconds / (num_tokens - 1))
        if cell.transfer_bytes:
            self._transfer.observe(cell.transfer_seconds)
            transport = cell.transport or STORE
            _TRANSFER_BYTES.labels(self._model, transport).inc(cell.transfer_bytes)
        self._migrations.inc(cell.num_migrations)
        self._handed_off.inc(cell.is_handed_off)

    def request_ended(
        self, *, num_prompt: int, num_choices: int, max_tokens: int | None, tokenize_seconds: float
    ) -> None:
        """Count a request whose choices all ended by themselves; `max_tokens` None for a vector."""
        self._prompt_length.observe(num_prompt)
        self._choices.observe(num_choices)
        self._tokenize.observe(tokenize_seconds)
        if max_tokens is not None:
            self._max_tokens.observe(max_tokens)


@cache
def stages_of(model: str) -> StageMetrics:
    """Return the metrics of a configured model."""
    return StageMetrics(model)
