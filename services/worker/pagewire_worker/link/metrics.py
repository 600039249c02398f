"""Counts the steps of a worker for its metrics endpoint."""

import asyncio

import numpy as np
from prometheus_client import Counter, Gauge, Histogram

from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.backend.expert_counts import ExpertCounts
from pagewire_worker.link.draft_metrics import DRAFTS
from pagewire_worker.link.expert_metrics import EXPERTS
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.speculation.speculator import Speculator

_SECONDS = Histogram(
    "pagewire_worker_step_seconds",
    "Time of a step in the model thread",
    ["model"],
    buckets=(
        *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
        *(0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0),
    ),
)
_MODEL = Counter("pagewire_worker_model_seconds", "Part of it inside the model", ["model"])
_COMPUTED = Counter(
    "pagewire_worker_computed_tokens", "Positions computed, of prompts and outputs", ["model"]
)
_SAMPLED = Counter("pagewire_worker_sampled_tokens", "Tokens sampled", ["model"])
_FAILED = Counter("pagewire_worker_failed_steps", "Steps that failed", ["model"])
_BATCH = Histogram(
    "pagewire_worker_step_sequences",
    "Sequences in a step",
    ["model"],
    buckets=(0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
)
_BLOCKS = Gauge("pagewire_worker_kv_blocks", "KV blocks there are", ["model"])
_ATTACHED = Gauge("pagewire_worker_attached", "Whether a scheduler has it", ["model"])

MICROSECONDS = 1e-6


class StepMeter:
    """Measures the steps of one replica."""

    def __init__(self, model: str) -> None:
        self._seconds = _SECONDS.labels(model)
        self._model = _MODEL.labels(model)
        self._computed = _COMPUTED.labels(model)
        self._sampled = _SAMPLED.labels(model)
        self._failed = _FAILED.labels(model)
        self._batch = _BATCH.labels(model)

    def ran(self, plan: StepPlan, result: StepResult, seconds: float) -> None:
        """Count a step that is over."""
        self._seconds.observe(seconds)
        self._batch.observe(len(plan.slots))
        if result.failure is not None:
            self._failed.inc()
            return
        self._model.inc(result.model_time_us * MICROSECONDS)
        self._computed.inc(int(np.sum(plan.num_new_tokens)))
        self._sampled.inc(len(result.token_ids))


def show_replica(
    info: ReplicaInfo,
    attached: asyncio.Event,
    expert_counts: ExpertCounts | None,
    speculator: Speculator | None = None,
) -> None:
    """Show the number of blocks, and from now on whether the worker is attached.

    Args:
        expert_counts: Shown from now on, too, if there are any.
        speculator: The drafts that it counts are shown; None without speculation.
    """
    if speculator is not None:
        DRAFTS.show(info.served_model_name, speculator.counts)
    if expert_counts is not None:
        EXPERTS.show(info.served_model_name, expert_counts)
    _BLOCKS.labels(info.served_model_name).set(info.num_blocks)
    _ATTACHED.labels(info.served_model_name).set_function(lambda: float(attached.is_set()))
