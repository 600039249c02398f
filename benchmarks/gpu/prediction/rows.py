"""Rows 1 to 12 of the goals for a card: the limit, and what is expected between best and worst."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bounds import decode_bytes, job_seconds, prefill_seconds
from jobs import nano_vllm_job
from shapes import SHAPES, Shape

from prediction import job_time
from prediction.cards import CARDS, Card
from prediction.costs import (
    BEST,
    EXPECTED,
    FAST_FP8,
    FAST_HOST,
    FAST_TILES,
    SLOW_FP8,
    SLOW_HOST,
    SLOW_TILES,
    WORST,
    Costs,
)
from prediction.exact_mode import exact_kernel_seconds
from prediction.host_figures import HostFigures
from prediction.kernels import Kind, Step, kernel_seconds, layer_kernels
from prediction.step_time import Model

SMALL, LARGE = SHAPES["qwen3-0.6b"], SHAPES["qwen3-8b"]

MEMORY_SHARE = 0.9
"""Of a card, for weights and cache."""

Value = Callable[[Model], float]
"""What a set of costs gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A row.

    Attributes:
        what: Is measured.
        unit: Of all numbers.
        limit: No overhead at all.
        expected, low, high: With the costs that are expected, and the least and the most of three
            sets of them.
        goal: On one H200; on another card the same share of its limit, where there is one.
        note: What decides it.
    """

    what: str
    unit: str
    limit: float
    expected: float
    low: float
    high: float
    goal: float
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A row of the goals, and how it is predicted.

    Attributes:
        limit: By card.
        value: By model.
        is_share: Whether the goal stays where it is on another card.
        costs: Between which it lies.
        is_job: Whether all sequences of the job have to fit in the card.
        needs_fp8: Whether the card has to know 8-bit floats.
    """

    what: str
    unit: str
    shape: Shape
    goal: float
    limit: Callable[[Card], float]
    value: Value
    note: str
    is_share: bool = False
    costs: tuple[Costs, Costs] = (BEST, WORST)
    is_job: bool = False
    needs_fp8: bool = False


def predict(card: Card, figures: HostFigures) -> dict[str, Prediction]:
    """Return the rows by their number."""
    return {number: _prediction(goal, card, figures) for number, goal in GOALS.items()}


def _prediction(goal: Goal, card: Card, figures: HostFigures) -> Prediction:
    if goal.needs_fp8 and not card.has_fp8:
        return _without_fp8(goal)
    models = [Model(goal.shape, card, costs, figures) for costs in (EXPECTED, *goal.costs)]
    expected, *others = map(goal.value, models)
    limit = goal.limit(card)
    scale = 1.0 if goal.is_share else limit / goal.limit(CARDS["h200"])
    return Prediction(
        what=goal.what,
        unit=goal.unit,
        limit=limit,
        expected=expected,
        low=min(expected, *others),
        high=max(expected, *others),
        goal=goal.goal * scale,
        note=goal.note + (_memory_note(goal.shape, card) if goal.is_job else ""),
    )


def _without_fp8(goal: Goal) -> Prediction:
    return Prediction(
        what=goal.what,
        unit=goal.unit,
        limit=1.0,
        expected=1.0,
        low=1.0,
        high=1.0,
        goal=1.0,
        note="the card has no 8-bit floats: a worker refuses the cache",
    )


def _memory_note(shape: Shape, card: Card) -> str:
    """Return what is to be said where the job does not fit in the card."""
    vocabulary = 0 if shape.tied else shape.vocab * shape.hidden
    cache = job_time.most_tokens() * shape.kv_elements_per_token
    needed = 2 * (shape.num_step_weights + vocabulary + cache)
    if needed <= MEMORY_SHARE * card.memory:
        return ""
    return (
        f"; needs {needed / 1e9:.0f} GB of {card.memory / 1e9:.0f}: sequences would wait, which is "
        "not in the figure"
    )


def _decode(batch: int, context: int, kv_size: int = 2) -> Step:
    return Step(num_decodes=batch, num_context=batch * context, kv_size=kv_size)


def _step_limit(shape: Shape, batch: int, context: int, card: Card) -> float:
    return decode_bytes(shape, [context] * batch) / card.limits.copy


def _job_limit(shape: Shape, card: Card) -> float:
    job = nano_vllm_job()
    seconds = job_seconds(shape, job.prompt_lens, job.output_lens, card.limits)
    return job.num_output_tokens / seconds


def _served_share(model: Model) -> float:
    return job_time.job_rate(model, is_served=True) / job_time.job_rate(model)


def attention_share(model: Model, context: int) -> float:
    """Return the rate of attention of 64 decodes, merging with it, as a share of a copy's."""
    kernels = [
        kernel
        for kernel in layer_kernels(model.shape, _decode(64, context))
        if kernel.kind in (Kind.DECODE, Kind.MERGE)
    ]
    gap = model.costs.gap_us * 1e-6
    seconds = sum(kernel_seconds(kernel, model.card, model.costs) + gap for kernel in kernels)
    num_bytes = sum(kernel.num_bytes for kernel in kernels)
    return num_bytes / model.card.limits.copy / seconds


def exact_tax(model: Model) -> float:
    """Return by how much exact mode makes a step of 64 decodes with 640 tokens longer, in %."""
    step = _decode(64, 640)
    exact = replace(model, kernel_time=exact_kernel_seconds)
    return (exact.wall_seconds(step) / model.wall_seconds(step) - 1) * 100


def _fp8_gain(model: Model) -> float:
    return model.wall_seconds(_decode(256, 1024)) / model.wall_seconds(_decode(256, 1024, 1))


GOALS = {
    "1": Goal(
        what="job, Qwen3-0.6B, in one process",
        unit="tok/s",
        shape=SMALL,
        goal=26_000,
        limit=lambda card: _job_limit(SMALL, card),
        value=job_time.job_rate,
        note="the rate of decode attention: KV is nine tenths of the bytes",
        is_job=True,
    ),
    "2": Goal(
        what="job, Qwen3-8B, in one process",
        unit="tok/s",
        shape=LARGE,
        goal=10_000,
        limit=lambda card: _job_limit(LARGE, card),
        value=job_time.job_rate,
        note="the rate of products, of few rows in decodes and of many in prompts",
        is_job=True,
    ),
    "3": Goal(
        what="served, of the job in one process, Qwen3-0.6B",
        unit="share",
        shape=SMALL,
        goal=0.95,
        limit=lambda card: 1.0,
        value=_served_share,
        note="that scheduler and worker have a core each, and 256 submits fit beside the prompts",
        is_share=True,
        costs=(FAST_HOST, SLOW_HOST),
    ),
    "4": Goal(
        what="decode, batch 1, 1,024 tokens, Qwen3-8B",
        unit="tok/s",
        shape=LARGE,
        goal=240,
        limit=lambda card: 1 / _step_limit(LARGE, 1, 1024, card),
        value=lambda model: 1 / model.wall_seconds(_decode(1, 1024)),
        note="ramp and gap of 360 kernels; cuBLAS with one row",
    ),
    "5": Goal(
        what="decode, batch 1, 1,024 tokens, Qwen3-0.6B",
        unit="tok/s",
        shape=SMALL,
        goal=1_700,
        limit=lambda card: 1 / _step_limit(SMALL, 1, 1024, card),
        value=lambda model: 1 / model.wall_seconds(_decode(1, 1024)),
        note="ramp and gap of 290 kernels, two thirds of it; the host takes a third of its time",
    ),
    "6": Goal(
        what="step of 64 with 640 tokens, Qwen3-8B",
        unit="ms",
        shape=LARGE,
        goal=6.2,
        limit=lambda card: _step_limit(LARGE, 64, 640, card) * 1e3,
        value=lambda model: model.wall_seconds(_decode(64, 640)) * 1e3,
        note="the rate at which products of 64 rows read weights",
    ),
    "7": Goal(
        what="TTFT p95, 128 tokens, Qwen3-8B",
        unit="ms",
        shape=LARGE,
        goal=8,
        limit=lambda card: prefill_seconds(LARGE, 128, card.limits) * 1e3,
        value=lambda model: model.first_token_seconds(128) * 1e3,
        note="launches one by one take as long as the device; HTTP and three processes a third",
    ),
    "8": Goal(
        what="TTFT p95, 2,048 tokens, Qwen3-8B",
        unit="ms",
        shape=LARGE,
        goal=50,
        limit=lambda card: prefill_seconds(LARGE, 2048, card.limits) * 1e3,
        value=lambda model: model.first_token_seconds(2048) * 1e3,
        note="products at 0.85 of the rate of a large one; attention at 0.35 (8 warps)",
    ),
    "9": Goal(
        what="attention of 64 decodes, 1,024 and 4,096 tokens",
        unit="share",
        shape=LARGE,
        goal=0.88,
        limit=lambda card: 1.0,
        value=lambda model: (attention_share(model, 1024) + attention_share(model, 4096)) / 2,
        note="the rate of decode_splits",
        is_share=True,
    ),
    "10": Goal(
        what="idle between steps at batch 256, Qwen3-0.6B",
        unit="ms",
        shape=SMALL,
        goal=0.15,
        limit=lambda card: 0.0,
        value=lambda model: model.idle_seconds(_decode(256, 1024)) * 1e3,
        note="gaps around the copies and operators outside the graph; those within it not counted",
        is_share=True,
    ),
    "11": Goal(
        what="exact mode, batch 64, 640 tokens, Qwen3-8B",
        unit="%",
        shape=LARGE,
        goal=10,
        limit=lambda card: 0.0,
        value=exact_tax,
        note="two of four products have 64 programs, half a device; Triton's at 0.9 of cuBLAS",
        is_share=True,
        costs=(FAST_TILES, SLOW_TILES),
    ),
    "12": Goal(
        what="fp8 KV, batch 256, 1,024 tokens, Qwen3-0.6B",
        unit="times",
        shape=SMALL,
        goal=1.7,
        limit=lambda card: (
            decode_bytes(SMALL, [1024] * 256) / decode_bytes(SMALL, [1024] * 256, kv_size=1)
        ),
        value=_fp8_gain,
        note="what making bfloat16 of fp8 costs a kernel that has half the bytes",
        is_share=True,
        costs=(FAST_FP8, SLOW_FP8),
        needs_fp8=True,
    ),
}
