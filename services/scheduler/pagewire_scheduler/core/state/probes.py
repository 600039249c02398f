"""Probes of pairs of workers: one worker computes a made-up prompt of a few blocks and hands it to
the other. Both keep the blocks until they have been compared."""

import struct
from dataclasses import dataclass, field
from typing import Final

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.topology import ProbeOutcome
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.request_creation import create_request
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams

NUM_BLOCKS: Final = 4
_STRIDE: Final = 7919  # a prime beyond most blocks, so that neighbours differ


@dataclass(slots=True, eq=False, kw_only=True)
class Probe:
    """One probe of `source` and `receiver`; `outcome` is set when it ends."""

    number: int
    source: WorkerState
    receiver: WorkerState
    num_blocks: int
    begun_at: float
    outcome: ProbeOutcome | None = None
    probe_blocks: list[tuple[WorkerState, BlockTable]] = field(default_factory=list)

    def end(self, sequence: Sequence, now: float) -> None:
        """End the wait of `sequence`: note the outcome, and keep the blocks that came."""
        names, num_found = [], 0
        for worker in (self.source, self.receiver):
            hits = worker.cached_prefix(sequence)
            table = BlockTable(worker.pool)
            table.share(hits)
            worker.handoffs.probe_blocks[self.number] = table
            self.probe_blocks.append((worker, table))
            names = [name for block in hits.held if (name := worker.pool.names[block]) is not None]
            num_found = len(hits)
        times = sequence.times
        lacking = self.num_blocks - num_found
        self.outcome = ProbeOutcome(
            prefill=self.source.info.worker_id,
            decode=self.receiver.info.worker_id,
            names=tuple(names),
            num_bytes=times.transfer_bytes,
            seconds=now - self.begun_at,
            transport=times.transport,
            error=f"{lacking} of {self.num_blocks} blocks did not come" if lacking else None,
        )
        sequence.advance(State.FINISHED_STOPPED)

    def release(self) -> None:
        """Release the blocks that were kept for the comparison."""
        for worker, table in self.probe_blocks:
            worker.handoffs.probe_blocks.pop(self.number, None)
            table.release()
            worker.touch()
        self.probe_blocks = []


def probe_sequence(probe: Probe, generation: int) -> Sequence:
    """Return the sequence of a probe; no other sequence has or will have its blocks."""
    model = probe.receiver.info.model
    identity = struct.pack("<QQ", generation, probe.number)
    num_tokens = probe.num_blocks * model.block_size + 1
    first = 31 * probe.number
    prompt = tuple((first + _STRIDE * at) % model.vocab_size for at in range(num_tokens))
    submission = Submission(
        request_id=RequestId(identity),
        epoch=0,
        handle=0,
        model=model.name,
        prompt_token_ids=prompt,
        emitted=((),),
        is_finished=(False,),
        sampling=SamplingParams(max_tokens=1, seed=0),
        salt=b"probe" + identity,
    )
    request = create_request(submission, b"", -probe.number, probe.begun_at)
    (sequence,) = request.sequences
    sequence.placement.probe = probe
    return sequence
