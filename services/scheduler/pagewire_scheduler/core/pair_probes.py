"""Probes: moves a few computed blocks between two workers, to show that this works."""

from collections.abc import Callable, Mapping

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.topology import ProbeOutcome
from pagewire_scheduler.core.state.pairs import refusal_of
from pagewire_scheduler.core.state.probes import NUM_BLOCKS, Probe, probe_sequence
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.handoffs import begin_handoff, end_handoff
from pagewire_shared.errors import InvalidRequestError, UnavailableError


class PairProbes:
    """The probes of a cell; `under_way` are those that were not ended, by number."""

    def __init__(
        self,
        workers: Mapping[bytes, WorkerState],
        generation: Callable[[], int],
        now: Callable[[], float],
        *,
        is_caching: bool,
    ) -> None:
        """Args: `workers` are the attached ones, by id."""
        self._workers = workers
        self._generation = generation
        self._now = now
        self._is_caching = is_caching
        self.under_way: dict[int, tuple[Probe, Sequence]] = {}
        self._num_begun = 0

    def begin(self, prefill: bytes, decode: bytes, timeout_seconds: float) -> int:
        """Compute some blocks on one worker and move them to another; return the probe's number.

        Raises:
            InvalidRequestError: These two exchange nothing.
            UnavailableError: One of them is gone.
        """
        source, receiver = self._workers.get(prefill), self._workers.get(decode)
        if source is None or receiver is None:
            raise UnavailableError("the worker is gone")
        if source.duty.is_still or receiver.duty.is_still:
            raise UnavailableError("the worker sleeps")
        reason = (
            "it is one worker"
            if source is receiver
            else refusal_of(source.info, receiver.info, is_caching=self._is_caching)
        )
        if reason is not None:
            raise InvalidRequestError(reason, field="worker")
        block_size = source.info.model.block_size
        most = min(source.info.num_blocks, receiver.info.num_blocks) // 4
        num_blocks = min(NUM_BLOCKS, (source.info.model.max_model_len - 1) // block_size, most)
        if num_blocks < 1:
            raise InvalidRequestError("there is no room for a block of a probe", field="worker")
        self._num_begun += 1
        probe = Probe(
            number=self._num_begun,
            source=source,
            receiver=receiver,
            num_blocks=num_blocks,
            begun_at=self._now(),
        )
        sequence = probe_sequence(probe, self._generation())
        self.under_way[probe.number] = (probe, sequence)
        begin_handoff(source, receiver, sequence, timeout_seconds, self._now())
        return probe.number

    def take_ended(self) -> list[tuple[int, ProbeOutcome]]:
        """Return the probes that have ended, each once."""
        ended = []
        for number, (probe, _) in self.under_way.items():
            if probe.outcome is not None:
                ended.append((number, probe.outcome))
                probe.outcome = None
        return ended

    def end(self, number: int) -> None:
        """Let go what both workers keep for a probe, which need not have ended."""
        probe, sequence = self.under_way.pop(number, (None, None))
        if probe is None or sequence is None:
            return
        if not sequence.state.is_finished:
            assert sequence.placement.queue is not None, "a probe waits nowhere"
            sequence.placement.queue.remove(sequence)
            if sequence in probe.receiver.handoffs.incoming:
                end_handoff(probe.receiver.handoffs.incoming[sequence])
            sequence.advance(State.FINISHED_ABORTED)
            probe.receiver.touch()
        probe.release()
