"""Sees every plan, result and load on its way, and holds what it says against what is known: the
contents that names stand for, and the plans of the same attach before it."""

import hashlib
from collections.abc import Callable

from simulation.checks.excuses import Excuses
from simulation.checks.plan_checks import PlanChecks
from simulation.configuration import Configuration
from simulation.coverage import Coverage
from simulation.model.answers import Answer
from simulation.model.naive import cell_in, cells_of, root_cell, salt_of_weights
from simulation.processes.cell import WorkerPeer

from pagewire_scheduler.core.state.fault_isolation import unit_of
from pagewire_scheduler.core.state.outstanding_step import OutstandingStep
from pagewire_shared.kv.load import LoadAnswer, LoadOrder
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepFailure


class MessageWatch:
    """What went over the streams of workers of one world.

    Attributes:
        content_of: Last cell of the block under each name ever given.
        log: Digest of every plan and every message to a frontend, in order.
    """

    def __init__(
        self,
        configuration: Configuration,
        coverage: Coverage,
        excuses: Excuses,
        salt_of: Callable[[bytes], bytes],
    ) -> None:
        self.configuration = configuration
        self.coverage = coverage
        self.excuses = excuses
        self.salt_of = salt_of
        self.content_of: dict[bytes, int] = {}
        self.checks: dict[int, PlanChecks] = {}
        self.log = hashlib.blake2b(digest_size=16)

    def ordered(self, peer: WorkerPeer, order: LoadOrder) -> None:
        self._checks(peer).ordered(order)
        self.log.update(repr(order).encode())

    def loaded(self, peer: WorkerPeer, answer: LoadAnswer) -> None:
        self._checks(peer).loaded(answer.load_id)

    def planned(self, peer: WorkerPeer, plan: StepPlan) -> None:
        self._checks(peer).sent(plan)
        step = peer.core.workers[peer.info.worker_id].outstanding[-1]
        weights = salt_of_weights(peer.info.model.model_fingerprint)
        self._note_names(step, self._checks(peer).tables, weights)
        self.log.update(repr(plan).encode())

    def _note_names(
        self, step: OutstandingStep, tables: dict[int, list[list[int]]], weights: bytes
    ) -> None:
        """Say what the blocks that a plan names must hold, by the tokens they are named after.

        A prefill may have left its slot with the plan; `tables` are those that the plan tells.
        """
        places = {
            block: (sequence, index, group)
            for slot, sequence in zip(step.plan.slots, step.sequences, strict=True)
            for group, blocks in enumerate(
                tables[slot] if sequence.table is None else sequence.table.groups
            )
            for index, block in enumerate(blocks)
        }
        # What the plan names besides are names that no content has.
        for block, name in zip(step.named_blocks, step.plan.names, strict=False):
            sequence, index, group = places[block]
            end = (index + 1) * self.configuration.block_size
            root = root_cell(self.salt_of(sequence.request.request_id) + weights)
            cell = cell_in(group, cells_of(root, sequence.tokens[:end])[-1])
            known = self.content_of.setdefault(name, cell)
            self.coverage.require("names_say_content", known == cell, "one name, two contents")

    def answered(self, peer: WorkerPeer, answer: Answer) -> None:
        """A result arrives in order on its own stream: what it may say, and what it answers."""
        core, info, result = peer.core, peer.info, answer.result
        worker = core.workers.get(info.worker_id) if peer.is_current else None
        if worker is None or not worker.outstanding:
            return
        step = worker.outstanding[0]
        identity = (worker.generation, info.incarnation, step.step_id)
        if (result.generation, result.incarnation, result.step_id) != identity:
            self.coverage.facts["results refused"] += 1
            return
        if answer.problem is not None:
            self.coverage.require("plans_are_possible", step.is_void, answer.problem)
        self.coverage.invariants["plans_are_possible"] += 1
        for name, cell in answer.named if not step.is_void else ():
            known = self.content_of.get(name, cell)
            self.coverage.require("names_say_content", known == cell, "a name of something else")
        if result.failure is not None and not step.is_void:
            self._note_failure(step, result.failure)
        self.checks[id(peer)].answered(result.step_id)

    def _note_failure(self, step: OutstandingStep, failure: StepFailure) -> None:
        """Only a culprit may fail for it, or who was alone in the step."""
        live = [chunk for chunk in step.chunks if not chunk.sequence.state.is_finished]
        blamed = [chunk for chunk in live if chunk.slot in failure.culprit_slots]
        if not blamed and len({id(unit_of(chunk.sequence)) for chunk in live}) == 1:
            blamed = live
        self.excuses.may_fail.update(chunk.sequence.request.request_id for chunk in blamed)

    def _checks(self, peer: WorkerPeer) -> PlanChecks:
        checks = self.checks.get(id(peer))
        if checks is None:
            checks = self.checks[id(peer)] = PlanChecks(peer, self.coverage)
        return checks
