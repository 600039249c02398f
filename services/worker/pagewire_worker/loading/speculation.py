"""Builds the speculator of a replica, and measures how long its steps take by their rows."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.backend import ModelBackend
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loading.draft_head import LoadedHead
from pagewire_worker.loading.draft_model import LoadedDraft
from pagewire_worker.loading.replica_shape import ReplicaShape
from pagewire_worker.loading.token_budget import probe_batch
from pagewire_worker.runner.step_sampler import Sampler
from pagewire_worker.speculation.draft_grammars import DraftGrammars
from pagewire_worker.speculation.draft_model import DraftModel
from pagewire_worker.speculation.lookups import DraftFinder, Lookups
from pagewire_worker.speculation.lookups_first import LookupsFirst
from pagewire_worker.speculation.ngram import NgramFinder
from pagewire_worker.speculation.prediction import PredictionFinder
from pagewire_worker.speculation.proposer import DraftProposer
from pagewire_worker.speculation.settings import GRAMMAR, SpeculationSettings, read_speculation
from pagewire_worker.speculation.speculator import Speculator
from pagewire_worker.speculation.step_costs import StepCosts
from pagewire_worker.speculation.suffix import SHORTEST_MATCH, SuffixFinder, SuffixRule
from pagewire_worker.speculation.tenant_texts import TenantTexts

MEASURED_ROWS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
MEASURED_TIMES: Final = 3
AFFORDABLE_SECONDS: Final = 2.0
"""Of all measurements together: what comes after is extrapolated."""


@dataclass(frozen=True, slots=True)
class Drafting:
    """Parts of a replica that guess tokens.

    Attributes:
        sampler: Chooses the tokens of the model.
        draft: The draft model or head; None for drafts that are looked up.
        most_rows: Rows of a step that several sequences share, at most.
    """

    slots: SlotTable
    sampler: Sampler
    draft: LoadedDraft | LoadedHead | None
    most_rows: int


def most_drafts(config: WorkerConfig) -> int:
    """Return the drafts per sequence and step, at most; 0 without speculation."""
    settings = read_speculation(config.speculative_config)
    return settings.num_speculative_tokens if settings.is_on else 0


def make_speculator(
    config: WorkerConfig,
    shape: ReplicaShape,
    backend: ModelBackend,
    drafting: Drafting,
    grammars: DraftGrammars,
) -> Speculator | None:
    """Return the speculator of a replica whose slots have `grammars`; None without speculation.

    Raises:
        StartupError: The replica cannot speculate.
    """
    settings, slots = read_speculation(config.speculative_config), drafting.slots
    if not settings.is_on:
        return None
    reason = None
    if shape.model.is_encoder:
        reason = "an encoder generates nothing"
    elif slots.host_tokens is None:
        reason = "drafts are proposed on CPUs only so far"
    if reason is not None:
        raise StartupError(f"--speculative-config: {reason}", field="speculative_config")
    costs = None
    if settings.adaptive:
        most_rows = min(drafting.most_rows, slots.limits.max_model_len)
        costs = measured_costs(backend, most_rows, time.perf_counter)
    predictions = PredictionFinder(slots.limits.vocab_size)
    return Speculator(
        proposer=make_proposer(settings, backend, drafting, predictions, grammars),
        table=slots,
        costs=costs,
        most=settings.num_speculative_tokens,
        predictions=predictions,
    )


def make_proposer(
    settings: SpeculationSettings,
    backend: ModelBackend,
    drafting: Drafting,
    predictions: PredictionFinder,
    grammars: DraftGrammars,
) -> DraftProposer:
    """Return the proposer of a method, behind the predictions of requests and their grammars.

    Raises:
        StartupError: `backend` does not hand out what a head reads.
    """
    draft = drafting.draft
    if draft is None:
        return Lookups([predictions, *make_finders(settings)], grammars)
    computing: DraftProposer
    if isinstance(draft, LoadedHead):
        computing = draft.proposer(backend, drafting.slots, drafting.sampler)
    else:
        computing = DraftModel(
            backend=draft.backend,
            blocks=draft.blocks,
            table=drafting.slots,
            sampler=drafting.sampler,
            draft_seconds=measured_costs(draft.backend, 1, time.perf_counter).seconds(1),
        )
    return LookupsFirst(Lookups([predictions], grammars), computing, grammars)


def make_finders(settings: SpeculationSettings) -> list[DraftFinder]:
    """Return the finders of a method that looks drafts up."""
    if settings.method == GRAMMAR:
        return []
    if settings.method == "ngram":
        return [NgramFinder(settings.prompt_lookup_min, settings.prompt_lookup_max)]
    rule = SuffixRule(
        max_tree_depth=settings.suffix_decoding_max_tree_depth,
        max_spec_factor=settings.suffix_decoding_max_spec_factor,
        min_token_prob=settings.suffix_decoding_min_token_prob,
    )
    texts = TenantTexts(SHORTEST_MATCH, settings.suffix_decoding_max_cached_requests)
    return [SuffixFinder(rule, texts)]


def measured_costs(backend: ModelBackend, most_rows: int, clock: Callable[[], float]) -> StepCosts:
    """Return the seconds of steps whose rows are all sampled from, up to `most_rows`.

    The first blocks of the cache are overwritten.
    """
    found: list[tuple[int, float]] = []
    began = clock()
    for num_rows in MEASURED_ROWS:
        if found and (num_rows > most_rows or clock() - began > AFFORDABLE_SECONDS):
            break
        batch = probe_batch(backend, num_rows, torch.arange(num_rows))
        seconds = []
        for _ in range(MEASURED_TIMES):
            started = clock()
            backend.greedy(backend.forward(batch))
            seconds.append(clock() - started)
        found.append((num_rows, min(seconds)))
    return StepCosts(found)
