"""Runs step plans one after the other on slots, model and sampler, in one thread without I/O.

`launch` starts a plan; `collect` returns its result when the device is done. The next plan may be
launched in between.

A step that fails returns a StepFailure and restores the slots, except freed ones, which stay free.
A sequence whose own numbers are not finite fails alone: the result names its slot, and the blocks
that it fills get no names.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.identity.ids import short
from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepFailure, StepResult
from pagewire_worker.adapters.table import check_adapters
from pagewire_worker.backend.adapters import AdapterSlots
from pagewire_worker.backend.backend import ModelBackend
from pagewire_worker.backend.collectives import RankLostError
from pagewire_worker.backend.device_copy import to_device
from pagewire_worker.batch.draft_rows import no_drafts
from pagewire_worker.batch.input_batch import PreparedStep, prepare_step
from pagewire_worker.batch.pooling import Head
from pagewire_worker.batch.slot_changes import apply_plan, undo_plan
from pagewire_worker.batch.slots import SlotLimits, SlotTable
from pagewire_worker.grammars.bitmask_source import BitmaskSource, NoBitmasks
from pagewire_worker.grammars.table import follow_grammars, forget_grammars
from pagewire_worker.kv.block_holder import BlockHolder
from pagewire_worker.kv.block_memory import BlockMemory, CacheBlocks
from pagewire_worker.kv.block_names import BlockNames
from pagewire_worker.kv.block_observer import BlockObserver
from pagewire_worker.kv.device_copies import DeviceCopies, ImmediateCopies
from pagewire_worker.plan.plan_error import PlanError
from pagewire_worker.runner.audit import SlotAudit, walk_slots
from pagewire_worker.runner.broken_slots import REASON, BrokenSlots, found_in, places_of_others
from pagewire_worker.runner.left_out import AwaitedMasks, leave_out, without_void_rows
from pagewire_worker.runner.readback import DeviceLostError, Readback, make_readback
from pagewire_worker.runner.results import (
    StepOutputs,
    empty_result,
    pack_result,
    step_outputs,
)
from pagewire_worker.runner.step_in_flight import LaunchedStep, StepInFlight
from pagewire_worker.runner.step_phases import NO_PHASES, StepPhases
from pagewire_worker.runner.step_sampler import Sampler, WaitForMasks, sample_step
from pagewire_worker.sampling.grammar_bitmask import NO_ROWS
from pagewire_worker.sampling.sampler import sample
from pagewire_worker.speculation.speculator import Speculator

_logger = logging.getLogger(__name__)


class ModelRunner:
    """One model replica as a function from plans to results.

    Args:
        max_num_batched_tokens: Most tokens per step.
        steps_in_flight: Steps that may have been planned before the result of one is known.
        grammars: Says which tokens requests with a grammar may sample; without it they are refused.
        observer: Called when blocks get names and when they are written anew.
        names: Names of the blocks, which other components read; empty at first.
        memory: The bytes of the blocks; those of the backend's cache by default.
        copies: How blocks come from the host and go there; at once by default.
        sampler: Chooses tokens where that takes more than the likeliest one.
        readback: Copies them to the host; by default as `device` needs it.
        head: Makes class scores of vectors; None for a model without a classification head.
        adapters: The adapter slots; without them sequences with an adapter are refused.
        slots: An empty table that was made before, with the same limits; one of its own by default.
        speculator: Guesses tokens of `slots`; None to guess none.

    Attributes:
        phases: Follows the steps while they are profiled.
    """

    def __init__(
        self,
        *,
        backend: ModelBackend,
        limits: SlotLimits,
        max_num_batched_tokens: int,
        device: torch.device,
        steps_in_flight: int = 1,
        grammars: BitmaskSource | None = None,
        observer: BlockObserver | None = None,
        names: BlockNames | None = None,
        memory: BlockMemory | None = None,
        copies: DeviceCopies | None = None,
        sampler: Sampler = sample,
        readback: Readback | None = None,
        slots: SlotTable | None = None,
        head: Head | None = None,
        adapters: AdapterSlots | None = None,
        speculator: Speculator | None = None,
    ) -> None:
        self.phases: StepPhases = NO_PHASES
        self._adapters = adapters
        self._backend = backend
        self._max_num_batched_tokens = max_num_batched_tokens
        self._device = device
        self._slots = SlotTable(limits, device) if slots is None else slots
        self._names = BlockNames() if names is None else names
        self._observer = observer or BlockObserver()
        copies = ImmediateCopies() if copies is None else copies
        memory = CacheBlocks(backend.kv_cache) if memory is None else memory
        self._blocks = BlockHolder(memory, self._names, self._observer, copies)
        self._grammars = NoBitmasks() if grammars is None else grammars
        self._steps_in_flight = steps_in_flight
        self._num_suspect_steps = 0
        self._broken = BrokenSlots()
        self._readback = make_readback(device) if readback is None else readback
        self._sampler = sampler
        self._head = head
        self._speculator = speculator
        self._draft_source = no_drafts if speculator is None else speculator.drafts
        self._unread: deque[StepInFlight] = deque()
        self._last_ended = 0.0

    @property
    def backend(self) -> ModelBackend:
        """The loaded model."""
        return self._backend

    @property
    def blocks(self) -> BlockHolder:
        """The KV blocks of the replica and their names."""
        return self._blocks

    def hurry_when(self, is_hurried: Callable[[], bool]) -> None:
        """Let no step wait for late masks once `is_hurried`: another one is there to be run."""
        self._grammars.hurry_when(is_hurried)
        if self._speculator is not None:
            self._speculator.hurry_when(is_hurried)

    def run(self, plan: StepPlan) -> StepResult:
        """Run one step. Never raises for what is wrong with a step: the result says it."""
        return self.collect(self.launch(plan))

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> StepInFlight:
        """Apply a plan and give the device its step, without waiting for it where one can.

        Never raises for what is wrong with a step: its result says it. Steps are collected in the
        order in which they were launched.

        Raises:
            DeviceLostError: As of `collect`.
            RankLostError: A rank of its group is lost.
        """
        self.phases.begin(plan)
        in_flight = self._launch(plan)
        self.phases.end()
        return in_flight

    def _launch(self, plan: StepPlan) -> StepInFlight:
        forget_grammars(self._grammars, plan, self._slots.limits.num_slots)
        self._observer.leave(plan.freed_slots)
        try:
            undo = apply_plan(self._slots, plan)
        except PlanError as error:
            return self._failed(plan, error, error.culprit_slots)
        try:
            return self._launch_applied(plan)
        except PlanError as error:
            undo_plan(self._slots, undo)
            return self._failed(plan, error, error.culprit_slots)
        except (DeviceLostError, RankLostError):
            raise
        except Exception as error:
            if self._readback.is_lost():
                raise DeviceLostError(f"step {plan.step_id}: {error}") from error
            _logger.exception("step %d failed, with %s", plan.step_id, self._named(plan.slots))
            undo_plan(self._slots, undo)
            return self._failed(plan, error, ())

    @torch.inference_mode()
    def collect(self, in_flight: StepInFlight) -> StepResult:
        """Wait for a step and return its result.

        Raises:
            DeviceLostError: The device failed after the launch; nothing on it can be trusted.
        """
        while in_flight.result is None:
            self._read_late(self._unread.popleft())
        self.phases.end()
        return in_flight.result

    @torch.inference_mode()
    def propose_drafts(self) -> None:
        """Compute the drafts that the last result has announced, if they take time."""
        if self._speculator is not None:
            self._speculator.propose()

    def drop_slots(self) -> None:
        """Forget all requests; blocks keep their content and names."""
        self._read_all()
        self._slots.clear()
        self._broken.clear()
        self._grammars.clear()
        self._observer.drop_slots()
        if self._speculator is not None:
            self._speculator.clear()

    def audit(self) -> SlotAudit:
        """Walk what is held."""
        return walk_slots(self._slots, self._names)

    def _launch_applied(self, plan: StepPlan) -> StepInFlight:
        check_adapters(self._adapters, plan)
        follow_grammars(self._grammars, plan)
        self._observer.follow(plan)
        if self._speculator is not None:
            self._speculator.follow(plan)
        if len(plan.slots) == 0:
            self._copy_blocks(plan)
            if self._promise_names(plan):
                self._keep_names(plan)
            return StepInFlight(plan, result=empty_result(plan))
        run = without_void_rows(self._slots, plan)
        if len(run.slots) == 0:
            return self._launch_void(plan)
        self.phases.mark("prepare")
        step = prepare_step(self._slots, run, self._max_num_batched_tokens, self._draft_source)
        # From here on the plan is known to be good: only now may KV and names change.
        self._copy_blocks(plan)
        self._blocks.overwrite(step.begun_blocks.tolist())
        if self._num_suspect_steps == 0:
            self._observer.begin(plan)
        started = time.perf_counter()
        hidden, wait_for_masks = self._forward(step)
        masks = AwaitedMasks(wait_for_masks, step.drafts)
        self.phases.mark("sample")
        sampled = sample_step(self._backend, self._sampler, step, hidden, masks)
        self._slots.write_sampled(
            step.sampling_slots, step.sampled_positions, sampled.token_ids, step.sampled_there
        )
        copy = self._readback.start(replace(sampled, kv_faults=step.batch.faults))
        self._observer.launched(plan)
        launched = LaunchedStep(step=step, hidden=hidden, copy=copy, masks=masks, started=started)
        in_flight = StepInFlight(plan, launched, gives_names=self._promise_names(plan))
        outputs: StepOutputs | None = None
        if copy.event is None or step.needs_states or step.drafts is not None:
            # States may be overwritten by the next step, and it must find the right drafts only.
            self._read_all()
            outputs = self._read(in_flight)
        else:
            self._unread.append(in_flight)
        # From here on nothing fails: what the step computes is kept.
        self._commit(step, masks.late, outputs)
        if self._speculator is not None and in_flight.result is not None:
            verified = None if outputs is None else outputs.verified
            in_flight.result = self._speculator.take(in_flight.result, step, verified)
        return in_flight

    def _commit(self, step: PreparedStep, late: Int64Array, outputs: StepOutputs | None) -> None:
        """Keep what a step has computed; without `outputs`, no draft was right."""
        verified = None if outputs is None else outputs.verified
        accepted = None if verified is None else step.num_accepted(verified)
        self._slots.commit(step.slots, step.ends, step.sampling_slots, late, accepted)
        self._slots.pooling.commit({} if outputs is None else outputs.pooled.sums)

    def _launch_void(self, plan: StepPlan) -> StepInFlight:
        """Answer a plan each row of which was planned on a token that there is not."""
        self._copy_blocks(plan)
        self._read_all()
        broken = self._broken.follow(plan, set())
        if self._promise_names(plan):
            self._keep_names(plan, broken)
        result = leave_out(empty_result(plan), plan, NO_ROWS, AwaitedMasks(_no_masks))
        if broken:
            result = replace(result, failed_slots=broken, failed_reason=REASON)
        return StepInFlight(plan, result=result)

    def _forward(self, step: PreparedStep) -> tuple[Tensor, WaitForMasks]:
        """Return the hidden states, and how to get the masks of the rows that sample."""
        self.phases.forward(step)
        slots = step.sampling_slots
        if len(slots) == 0:
            return self._backend.forward(step.batch), _no_masks
        if self._unread and self._grammars.follows(slots):
            # The masks need what the step before samples; the device goes on meanwhile.
            hidden = self._backend.forward(step.batch)
            self._read_all()
            return hidden, self._grammars.begin(slots, step.output_positions, self._slots)
        wait_for_masks = self._grammars.begin(slots, step.output_positions, self._slots)
        return self._backend.forward(step.batch), wait_for_masks

    def _read_all(self) -> None:
        while self._unread:
            self._read_late(self._unread.popleft())

    def _read_late(self, in_flight: StepInFlight) -> None:
        """Read a step on which others were launched already: it cannot be taken back."""
        try:
            self._read(in_flight)
        except RuntimeError as error:
            raise DeviceLostError(f"step {in_flight.plan.step_id}: {error}") from error

    def _read(self, in_flight: StepInFlight) -> StepOutputs:
        """Wait for the device and set the result; return the outputs."""
        self.phases.mark("result")
        plan, launched = in_flight.plan, in_flight.launched
        assert launched is not None
        ended, step, sampled = launched.wait(), launched.step, launched.copy.sampled
        seconds = ended - max(launched.started, self._last_ended)
        self._last_ended = ended
        logits, unmasked = self._backend.logits, launched.masks.unmasked
        outputs = step_outputs(step, launched.hidden, sampled, logits, self._head, unmasked)
        broken = self._broken.follow(plan, found_in(step, outputs))
        if broken:
            _logger.warning("step %d: %s: %s", plan.step_id, self._named(broken), REASON)
        result = pack_result(plan, step, outputs, int(seconds * 1e6), broken, REASON)
        verified = outputs.verified
        in_flight.result = leave_out(result, plan, step.sampling_slots, launched.masks, verified)
        is_well = ~np.isin(step.sampling_slots, broken)
        if verified is not None:
            is_well &= verified.is_kept
        is_well[launched.masks.late] = False
        if is_well.any():
            tokens = sampled.token_ids.numpy()[is_well]
            self._grammars.accept(step.sampling_slots[is_well], tokens)
        if in_flight.gives_names:
            self._keep_names(plan, broken)
        return outputs

    def _copy_blocks(self, plan: StepPlan) -> None:
        destinations = np.asarray(plan.copy_destinations, dtype=np.int64)
        if len(destinations) == 0:
            return
        self._blocks.overwrite(destinations.tolist())
        self._backend.kv_cache.copy_blocks(
            to_device(np.asarray(plan.copy_sources, dtype=np.int64), self._device),
            to_device(destinations, self._device),
        )

    def _promise_names(self, plan: StepPlan) -> bool:
        """Promise the names that the plan gives; return whether it may give any."""
        # Steps planned before a failure was known may have read what the failed one never wrote: a
        # missing name costs a recomputation, a wrong one corrupts every reader of the block.
        if self._num_suspect_steps > 0:
            self._num_suspect_steps -= 1
            return False
        blocks = np.asarray(plan.named_blocks, dtype=np.int64).tolist()
        for block, name in zip(blocks, plan.names, strict=True):
            self._names.forget((block,))
            self._names.promise(block, name)
        return True

    def _keep_names(self, plan: StepPlan, broken: tuple[int, ...] = ()) -> None:
        """Give what was promised, but for blocks of `broken` slots and those written anew since."""
        blocks = np.asarray(plan.named_blocks, dtype=np.int64)
        kept = places_of_others(plan, broken).tolist() if broken else list(range(len(blocks)))
        kept = [place for place in kept if self._names.keep(int(blocks[place]), plan.names[place])]
        if len(kept) < len(blocks):
            self._names.break_promises(blocks.tolist())
            plan = replace(
                plan,
                named_blocks=blocks[kept].tolist(),
                names=[plan.names[place] for place in kept],
                named_slots=[
                    int(plan.named_slots[place]) for place in kept if len(plan.named_slots)
                ],
                named_stripes=[
                    int(plan.named_stripes[place]) for place in kept if len(plan.named_stripes)
                ],
            )
        self._observer.named(plan)

    def _named(self, slots: Iterable[int]) -> str:
        ids = (self._slots.request_ids[slot] for slot in slots)
        return "requests " + ", ".join("none" if one is None else short(one) for one in ids)

    def _failed(
        self, plan: StepPlan, error: Exception, culprit_slots: tuple[int, ...]
    ) -> StepInFlight:
        self._num_suspect_steps = self._steps_in_flight - 1
        self._names.break_promises(np.asarray(plan.named_blocks, dtype=np.int64).tolist())
        self._observer.failed()
        message = " ".join(f"{type(error).__name__}: {error}".split())
        failure = StepFailure(message, culprit_slots)
        return StepInFlight(plan, result=replace(empty_result(plan), failure=failure))


def _no_masks() -> None:
    return None
