"""Sees every message on its way to a worker: that it fits a message of the real stream, and that no
more is under way than there is credit for, so that nothing piles up for a worker that reads."""

from typing import Any

from simulation.configuration import Configuration
from simulation.coverage import Coverage
from simulation.model.answers import tables_of

from pagewire_scheduler.convert.adapters import adapter_message
from pagewire_scheduler.convert.worker import compile_message
from pagewire_scheduler.core.state.adapters import SlotLoad
from pagewire_scheduler.core.transfers.loading import MAX_LOADS
from pagewire_scheduler.core.transfers.pulls import MAX_PULLS
from pagewire_shared.kv.load import LoadOrder
from pagewire_shared.kv.load_convert import load_to_message
from pagewire_shared.rpc.send_queue import MESSAGE_BYTES
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_shared.steps.convert import plan_to_message
from pagewire_shared.steps.plan import StepPlan

RECORD_BYTES = 256
"""Of a new sequence besides tokens and blocks, by arithmetic."""
OTHERS = 4
"""Welcome, farewell and roles, and one to spare."""


class StreamWatch:
    """The streams to all workers of one world."""

    def __init__(self, configuration: Configuration, coverage: Coverage) -> None:
        self._limits = configuration.stream_limits
        self._coverage = coverage
        blocks = configuration.max_num_batched_tokens // configuration.block_size
        slots = configuration.max_num_seqs
        # As StreamLimits says; the ends of chunks lie within blocks.
        rest = 81 * slots + 28 * (blocks + slots) + 24 * configuration.num_blocks + 1024
        self._plan_bytes = self._limits.new_bytes + rest

    def planned(self, peer: Any, plan: StepPlan) -> None:
        """Check a plan that is about to be sent."""
        message = plan_to_message(plan)
        # With what frames each of them.
        new = sum(one.ByteSize() + 6 for one in message.new_requests)
        # Real records are small here, so they are held to what they are counted with, too.
        counted = sum(
            RECORD_BYTES
            + 4 * (len(one.prompt_token_ids) + len(one.emitted_token_ids))
            + 4 * sum(len(table) for table in tables_of(one))
            for one in plan.new_sequences
        )
        self._fits("the new sequences of a plan", max(new, counted), self._limits.new_bytes)
        self._fits("a plan", message.ByteSize(), self._plan_bytes)
        facts = self._coverage.facts
        facts["plans half full of new sequences"] += 2 * counted > self._limits.new_bytes
        facts["prefixes told by their slots"] += any(
            one.num_prefix_tokens for one in plan.new_sequences
        )
        self._check_credit(peer)

    def asked(self, peer: Any, grammar_id: bytes, params: StructuredOutputsParams) -> None:
        """Check a grammar that is about to be asked for; `peer.asked` has it."""
        self._fits("a grammar", compile_message(grammar_id, params).ByteSize(), MESSAGE_BYTES)
        num_asked = len(peer.asked)
        is_right = num_asked <= self._limits.max_grammars
        self._coverage.require("messages_within_credit", is_right, f"{num_asked} grammars")
        self._check_credit(peer)

    def adapter_ordered(self, peer: Any, order: SlotLoad) -> None:
        """Check a load of an adapter that is about to be sent."""
        self._fits("an adapter", adapter_message(order).ByteSize(), MESSAGE_BYTES)
        self._check_credit(peer)

    def ordered(self, peer: Any, order: LoadOrder) -> None:
        """Check a load that is about to be sent."""
        self._fits("a load", load_to_message(order).ByteSize(), MESSAGE_BYTES)
        self._check_credit(peer)

    def _fits(self, what: str, num_bytes: int, most: int) -> None:
        detail = f"{what} has {num_bytes} bytes, and {most} fit"
        self._coverage.require("messages_fit", num_bytes <= most, detail)
        self._coverage.invariants["messages_fit"] += 1

    def _check_credit(self, peer: Any) -> None:
        # A load that was cancelled may not be answered yet.
        most = peer.info.steps_in_flight + self._limits.max_grammars
        most += 2 * (MAX_LOADS + MAX_PULLS) + OTHERS + peer.info.max_adapters
        waiting = len(peer.stream.down)
        detail = f"{waiting} messages wait for a worker, and {most} have credit"
        self._coverage.require("messages_within_credit", waiting < most, detail)
        self._coverage.invariants["messages_within_credit"] += waiting > 1
