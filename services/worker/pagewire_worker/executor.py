"""Runs plans one after the other: slots, model, sampler, names. Synchronous, in one thread, no I/O.

A step that fails answers with a StepFailure and leaves the slots as they were before it, freed
slots excepted: those had left anyway.
"""

import logging
import time
from dataclasses import replace

import numpy as np
import torch

from pagewire_worker.audit import SlotAudit, walk_slots
from pagewire_worker.backend import ModelBackend
from pagewire_worker.block_names import BlockNames
from pagewire_worker.input_batch import PreparedStep, prepare_step
from pagewire_worker.sampler import SampledTokens, sample
from pagewire_worker.sampling_table import NO_LOGPROBS
from pagewire_worker.slot_changes import apply_plan, undo_plan
from pagewire_worker.slots import Int64Array, PlanError, SlotLimits, SlotTable
from pagewire_worker.step import (
    NO_FLOATS,
    NO_INTS,
    Floats,
    StepFailure,
    StepPlan,
    StepResult,
    U32Array,
)

_logger = logging.getLogger(__name__)


class Executor:
    """One model replica as a function from plans to results.

    Args:
        backend: The loaded model.
        limits: Bounds of slots, blocks and tokens.
        max_num_batched_tokens: Most tokens per step.
        device: Where the backend runs.
        steps_in_flight: Steps that may have been planned before the result of one is known.
    """

    def __init__(
        self,
        backend: ModelBackend,
        limits: SlotLimits,
        max_num_batched_tokens: int,
        device: torch.device,
        steps_in_flight: int = 1,
    ) -> None:
        self._backend = backend
        self._max_num_batched_tokens = max_num_batched_tokens
        self._device = device
        self._slots = SlotTable(limits, device)
        self._names = BlockNames()
        self._steps_in_flight = steps_in_flight
        self._num_suspect_steps = 0

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> StepResult:
        """Run one step. Never raises for what is wrong with a step: the result says it."""
        try:
            undo = apply_plan(self._slots, plan)
        except PlanError as error:
            return self._failed(plan, error, error.culprit_slots)
        try:
            return self._run_applied(plan)
        except PlanError as error:
            undo_plan(self._slots, undo)
            return self._failed(plan, error, error.culprit_slots)
        except Exception as error:
            _logger.exception("step %d failed", plan.step_id)
            undo_plan(self._slots, undo)
            return self._failed(plan, error, ())

    def drop_slots(self) -> None:
        """Forget all requests; blocks keep their content and names."""
        self._slots.clear()

    def held_names(self) -> dict[int, bytes]:
        """Return the names of VALID blocks by block id."""
        return self._names.held()

    def audit(self) -> SlotAudit:
        """Walk what is held."""
        return walk_slots(self._slots, self._names)

    def _run_applied(self, plan: StepPlan) -> StepResult:
        if len(plan.slots) == 0:
            self._copy_blocks(plan)
            self._apply_names(plan)
            return _empty(plan)
        step = prepare_step(self._slots, plan, self._max_num_batched_tokens)
        # From here on the plan is known to be good: only now may KV and names change.
        self._copy_blocks(plan)
        self._names.forget(step.begun_blocks.tolist())
        started = time.perf_counter()
        hidden = self._backend.forward(step.batch)
        logits = self._backend.logits(hidden)
        sampled = sample(logits, step.sampling) if len(step.sampling_slots) else None
        if sampled is not None:
            self._slots.write_sampled(
                step.sampling_slots, step.sampled_positions, sampled.token_ids
            )
        token_ids = _to_host(sampled)
        model_time_us = int((time.perf_counter() - started) * 1e6)
        self._slots.commit(step.slots, step.ends, step.sampling_slots)
        self._apply_names(plan)
        return _result(plan, step, sampled, token_ids, model_time_us)

    def _copy_blocks(self, plan: StepPlan) -> None:
        destinations = np.asarray(plan.copy_destinations, dtype=np.int64)
        if len(destinations) == 0:
            return
        self._names.forget(destinations.tolist())
        self._backend.kv_cache.copy_blocks(
            torch.from_numpy(np.asarray(plan.copy_sources, dtype=np.int64)).to(self._device),
            torch.from_numpy(destinations).to(self._device),
        )

    def _apply_names(self, plan: StepPlan) -> None:
        # Steps planned before a failure was known may have read what the failed one never wrote: a
        # missing name costs a recomputation, a wrong one corrupts whoever reads the block.
        if self._num_suspect_steps > 0:
            self._num_suspect_steps -= 1
            return
        blocks = np.asarray(plan.named_blocks, dtype=np.int64).tolist()
        for block, name in zip(blocks, plan.names, strict=True):
            self._names.name(block, name)

    def _failed(
        self, plan: StepPlan, error: Exception, culprit_slots: tuple[int, ...]
    ) -> StepResult:
        self._num_suspect_steps = self._steps_in_flight - 1
        message = " ".join(f"{type(error).__name__}: {error}".split())
        return replace(_empty(plan), failure=StepFailure(message, culprit_slots))


def _empty(plan: StepPlan) -> StepResult:
    return StepResult(
        generation=plan.generation, incarnation=plan.incarnation, step_id=plan.step_id
    )


def _to_host(sampled: SampledTokens | None) -> U32Array:
    if sampled is None:
        return np.zeros(0, dtype=np.uint32)
    return sampled.token_ids.cpu().numpy().astype(np.uint32)


def _result(
    plan: StepPlan,
    step: PreparedStep,
    sampled: SampledTokens | None,
    token_ids: U32Array,
    model_time_us: int,
) -> StepResult:
    wanted = step.sampling.num_logprobs
    num_top, top_ids, top_logprobs = _alternatives(sampled, wanted)
    return StepResult(
        generation=plan.generation,
        incarnation=plan.incarnation,
        step_id=plan.step_id,
        slots=step.sampling_slots.astype(np.uint32),
        counts=np.ones(len(token_ids), dtype=np.uint32),
        token_ids=token_ids,
        logprobs=_token_logprobs(sampled, wanted),
        num_top=num_top,
        top_token_ids=top_ids,
        top_logprobs=top_logprobs,
        model_time_us=model_time_us,
    )


def _token_logprobs(sampled: SampledTokens | None, wanted: Int64Array) -> Floats:
    if sampled is None or sampled.logprobs is None:
        return NO_FLOATS
    values: Floats = sampled.logprobs.cpu().numpy().astype(np.float32)
    values[wanted == NO_LOGPROBS] = np.nan
    return values


def _alternatives(
    sampled: SampledTokens | None, wanted: Int64Array
) -> tuple[U32Array, U32Array, Floats]:
    if sampled is None or sampled.top_ids is None or sampled.top_logprobs is None:
        return NO_INTS, NO_INTS, NO_FLOATS
    ids = sampled.top_ids.cpu().numpy()
    values: Floats = sampled.top_logprobs.cpu().numpy()
    num_top = np.clip(wanted, 0, ids.shape[1])
    is_wanted = np.arange(ids.shape[1])[None, :] < num_top[:, None]
    return num_top.astype(np.uint32), ids[is_wanted].astype(np.uint32), values[is_wanted]
