"""Runs plans one after the other: slots, model, sampler, names. Synchronous, in one thread, no I/O.

A step that fails answers with a StepFailure and leaves the slots as they were before it, freed
slots excepted: those had left anyway.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.ids import short
from pagewire_worker.audit import SlotAudit, walk_slots
from pagewire_worker.backend import ModelBackend
from pagewire_worker.block_names import BlockNames
from pagewire_worker.device_copies import DeviceCopies, ImmediateCopies
from pagewire_worker.input_batch import PreparedStep, prepare_step
from pagewire_worker.offload.block_copy import copy_out, fill_staging, write_blocks
from pagewire_worker.offload.block_watch import BlockWatch, NoWatch
from pagewire_worker.pooling import pool
from pagewire_worker.prompt_logprobs import prompt_logprobs
from pagewire_worker.results import NO_SAMPLES, StepOutputs, empty_result, pack_result
from pagewire_worker.sampler import SampledTokens, sample
from pagewire_worker.slot_changes import apply_plan, undo_plan
from pagewire_worker.slots import Int64Array, PlanError, SlotLimits, SlotTable
from pagewire_worker.step import StepFailure, StepPlan, StepResult
from pagewire_worker.token_masks import (
    MaskSource,
    NoMasks,
    TokenMasks,
    apply_masks,
    require_tokens,
)
from pagewire_worker.transfer.layer_copy import block_index, copy_layers_in

_logger = logging.getLogger(__name__)


class Executor:
    """One model replica as a function from plans to results.

    Args:
        backend: The loaded model.
        limits: Bounds of slots, blocks and tokens.
        max_num_batched_tokens: Most tokens per step.
        device: Where the backend runs.
        steps_in_flight: Steps that may have been planned before the result of one is known.
        grammars: Says which tokens requests with a grammar may sample; without it they are refused.
        watch: Told of blocks that get names and are written anew.
        names: Those of the blocks, for whoever else reads them; none yet.
        copies: How blocks come from the host and go there; at once by default.
    """

    def __init__(
        self,
        backend: ModelBackend,
        limits: SlotLimits,
        max_num_batched_tokens: int,
        device: torch.device,
        steps_in_flight: int = 1,
        grammars: MaskSource | None = None,
        watch: BlockWatch | None = None,
        names: BlockNames | None = None,
        copies: DeviceCopies | None = None,
    ) -> None:
        self._backend = backend
        self._max_num_batched_tokens = max_num_batched_tokens
        self._device = device
        self._slots = SlotTable(limits, device)
        self._names = BlockNames() if names is None else names
        self._grammars = NoMasks() if grammars is None else grammars
        self._watch = NoWatch() if watch is None else watch
        self._copies = ImmediateCopies() if copies is None else copies
        self._steps_in_flight = steps_in_flight
        self._num_suspect_steps = 0

    @torch.inference_mode()
    def run(self, plan: StepPlan) -> StepResult:
        """Run one step. Never raises for what is wrong with a step: the result says it."""
        self._forget_grammars(plan)
        self._watch.leave(plan.freed_slots)
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
            _logger.exception("step %d failed, with %s", plan.step_id, self._named(plan))
            undo_plan(self._slots, undo)
            return self._failed(plan, error, ())

    def drop_slots(self) -> None:
        """Forget all requests; blocks keep their content and names."""
        self._slots.clear()
        self._grammars.clear()
        self._watch.drop_slots()

    @torch.inference_mode()
    def load_blocks(
        self,
        blocks: Sequence[int],
        names: Sequence[bytes],
        payloads: Sequence[memoryview | bytes],
        staging: Tensor,
    ) -> None:
        """Write payloads that came from elsewhere into blocks that no plan uses, and name them.

        Raises:
            ValueError: A payload has another size than a block; the blocks have no names then.
        """
        self._begin_blocks(blocks)
        self._copies.wait_for_loads()
        cache = self._backend.kv_cache
        rows = fill_staging(cache, payloads, staging)
        self._copies.load(lambda: write_blocks(cache, blocks, rows))
        for block, name in zip(blocks, names, strict=True):
            self._names.name(block, name)

    def begin_load(self, blocks: Sequence[int]) -> None:
        """Take blocks that no plan uses for what comes layer by layer; they have no names then."""
        self._begin_blocks(blocks)

    def load_layers(
        self, blocks: Sequence[int], first_layer: int, num_layers: int, payload: Tensor
    ) -> None:
        """Write layers of n blocks that a load has begun; payload as in layer_copy."""
        cache = self._backend.kv_cache
        index = block_index(cache, blocks)
        self._copies.load(lambda: copy_layers_in(cache, index, first_layer, num_layers, payload))

    def name_loaded(self, blocks: Sequence[int], names: Sequence[bytes]) -> None:
        """Name blocks of which a load has written all layers."""
        for block, name in zip(blocks, names, strict=True):
            self._names.name(block, name)

    def copy_out(self, names: Sequence[bytes], staging: Tensor) -> list[int]:
        """Copy the payloads of those of n `names` that are VALID into the rows of `staging`
        [m, bytes], m >= n; return their indices, one per row. Waits for the copy."""
        found = [(number, self._names.find(name)) for number, name in enumerate(names)]
        valid = [(number, block) for number, block in found if block is not None]
        if valid:
            cache, blocks = self._backend.kv_cache, [block for _, block in valid]
            event = self._copies.copy_out(blocks, lambda: copy_out(cache, blocks, staging))
            event.synchronize()
        return [number for number, _ in valid]

    def held_names(self) -> dict[int, bytes]:
        """Return the names of VALID blocks by block id."""
        return self._names.held()

    def audit(self) -> SlotAudit:
        """Walk what is held."""
        return walk_slots(self._slots, self._names)

    def _run_applied(self, plan: StepPlan) -> StepResult:
        self._follow_grammars(plan)
        self._watch.follow(plan)
        if len(plan.slots) == 0:
            self._copy_blocks(plan)
            self._apply_names(plan)
            return empty_result(plan)
        step = prepare_step(self._slots, plan, self._max_num_batched_tokens)
        # From here on the plan is known to be good: only now may KV and names change.
        self._copy_blocks(plan)
        self._begin_blocks(step.begun_blocks.tolist())
        if self._num_suspect_steps == 0:
            self._watch.begin(plan)
        started = time.perf_counter()
        wait_for_masks = self._begin_masks(step)
        hidden = self._backend.forward(step.batch)
        sampled = self._sample(step, hidden, wait_for_masks)
        token_ids = sampled.token_ids.cpu().numpy()
        model_time_us = int((time.perf_counter() - started) * 1e6)
        outputs = self._outputs(step, hidden, sampled, token_ids)
        result = pack_result(plan, step, outputs, model_time_us)
        if len(token_ids):
            self._grammars.accept(step.sampling_slots, token_ids)
        # From here on nothing fails: what the step has computed is kept.
        self._slots.commit(step.slots, step.ends, step.sampling_slots)
        self._slots.pooling.commit(outputs.pooled.sums)
        self._apply_names(plan)
        return result

    def _begin_masks(self, step: PreparedStep) -> Callable[[], TokenMasks | None]:
        if len(step.sampling_slots) == 0:
            return lambda: None
        return self._grammars.begin(step.sampling_slots, step.output_positions, self._slots)

    def _sample(
        self,
        step: PreparedStep,
        hidden: Tensor,
        wait_for_masks: Callable[[], TokenMasks | None],
    ) -> SampledTokens:
        """Sample from the first of the states `hidden` [outputs, hidden], and write it down."""
        num_rows = len(step.sampling_slots)
        if num_rows == 0:
            return NO_SAMPLES
        sampled = self._sampled(step, hidden[:num_rows], wait_for_masks)
        self._slots.write_sampled(step.sampling_slots, step.sampled_positions, sampled.token_ids)
        return sampled

    def _sampled(
        self,
        step: PreparedStep,
        hidden: Tensor,
        wait_for_masks: Callable[[], TokenMasks | None],
    ) -> SampledTokens:
        """Sample from the states `hidden` [samples, hidden]."""
        if step.sampling.is_plain:
            masks = wait_for_masks()
            if masks is None:
                return SampledTokens(self._backend.greedy(hidden))
            logits = self._backend.logits(hidden)
            require_tokens(masks, step.sampling_slots, logits.shape[1])
            apply_masks(logits, masks)
            return SampledTokens(logits.argmax(dim=1))
        logits = self._backend.logits(hidden)
        masks = wait_for_masks()
        if masks is not None:
            require_tokens(masks, step.sampling_slots, logits.shape[1])
        return sample(logits, step.sampling, masks)

    def _outputs(
        self, step: PreparedStep, hidden: Tensor, sampled: SampledTokens, token_ids: Int64Array
    ) -> StepOutputs:
        """Return the tokens with what the other states `hidden` [outputs, hidden] say."""
        num_pooled = len(step.pooling.rows)
        end = len(hidden) - num_pooled
        prompt = None
        if step.prompt is not None:
            states = hidden[len(token_ids) : end]
            prompt = prompt_logprobs(step.prompt, states, self._backend.logits)
        return StepOutputs(
            sampled, token_ids.astype(np.uint32), prompt, pool(step.pooling, hidden[end:])
        )

    def _forget_grammars(self, plan: StepPlan) -> None:
        if plan.released_grammars:
            self._grammars.release(plan.released_grammars)
        freed = np.asarray(plan.freed_slots, dtype=np.int64)
        # A slot that does not exist is found when the plan is applied.
        for slot in freed[freed < self._slots.limits.num_slots].tolist():
            self._grammars.free(slot)

    def _follow_grammars(self, plan: StepPlan) -> None:
        """Tell of new requests and forks. Whom a failed plan installed is forgotten when the slot
        is filled again."""
        for request in plan.new_requests:
            self._grammars.install(request)
        if len(plan.fork_slots):
            self._grammars.fork(
                np.asarray(plan.fork_slots, dtype=np.int64),
                np.asarray(plan.fork_sources, dtype=np.int64),
            )

    def _copy_blocks(self, plan: StepPlan) -> None:
        destinations = np.asarray(plan.copy_destinations, dtype=np.int64)
        if len(destinations) == 0:
            return
        self._begin_blocks(destinations.tolist())
        self._backend.kv_cache.copy_blocks(
            torch.from_numpy(np.asarray(plan.copy_sources, dtype=np.int64)).to(self._device),
            torch.from_numpy(destinations).to(self._device),
        )

    def _begin_blocks(self, blocks: Sequence[int]) -> None:
        self._watch.overwrite(blocks)
        self._names.forget(blocks)

    def _apply_names(self, plan: StepPlan) -> None:
        # Steps planned before a failure was known may have read what the failed one never wrote: a
        # missing name costs a recomputation, a wrong one corrupts whoever reads the block.
        if self._num_suspect_steps > 0:
            self._num_suspect_steps -= 1
            return
        blocks = np.asarray(plan.named_blocks, dtype=np.int64).tolist()
        for block, name in zip(blocks, plan.names, strict=True):
            self._names.name(block, name)
        self._watch.named(plan)

    def _named(self, plan: StepPlan) -> str:
        ids = (self._slots.request_ids[slot] for slot in plan.slots)
        return "requests " + ", ".join("none" if one is None else short(one) for one in ids)

    def _failed(
        self, plan: StepPlan, error: Exception, culprit_slots: tuple[int, ...]
    ) -> StepResult:
        self._num_suspect_steps = self._steps_in_flight - 1
        self._watch.failed()
        message = " ".join(f"{type(error).__name__}: {error}".split())
        return replace(empty_result(plan), failure=StepFailure(message, culprit_slots))
