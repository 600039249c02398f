"""The part of the core's facade about pairs of workers: roles, the topology of pairs that exchange
blocks, and probes of pairs."""

from collections.abc import Iterator

from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.topology import PairEntry, ProbeOutcome, Topology, WorkerEntry
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_scheduler.core.kv_caches import KvCaches
from pagewire_scheduler.core.queueing.policy import create_policy
from pagewire_scheduler.core.routing.draining import Draining
from pagewire_scheduler.core.routing.queues import ModelQueues
from pagewire_scheduler.core.state.pairs import PairFacts, refusal
from pagewire_scheduler.core.state.probes import NUM_BLOCKS, Probe, probe_sequence
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.handoffs import begin_handoff, end_handoff
from pagewire_shared.errors import InvalidRequestError, UnavailableError


class Exchange(KvCaches):
    """Workers, where sequences wait, and what moves between them; see `SchedulerCore`."""

    def __init__(self, settings: CoreSettings) -> None:
        super().__init__(is_caching=settings.is_caching)
        self.settings = settings
        self.policy = create_policy(settings.policy, settings.tenant_weights)
        self.queues = ModelQueues(
            self.policy, self.stores, settings, self.counts.handoffs, lambda: self.now
        )
        self.departures = Draining(
            self.queues, self.counts.handoffs, is_caching=settings.is_caching
        )
        self.probes: dict[int, tuple[Probe, Sequence]] = {}
        self._num_probes = 0

    def drain_worker(self, worker_id: bytes) -> None:
        """Place nothing new on a worker; what runs there moves, or runs to its end."""
        worker = self.workers[worker_id]
        worker.touch()
        self.departures.drain(worker)

    def is_drained(self, worker_id: bytes) -> bool:
        """Whether a draining worker has nothing left to do, and keeps nothing for others."""
        worker = self.workers[worker_id]
        is_idle = not worker.num_sequences and not worker.outstanding
        return worker.is_draining and is_idle and not worker.outgoing_handoffs

    def set_roles(self, worker_id: bytes, roles: frozenset[Role]) -> None:
        """Use a worker for `roles` from now on; what runs there ends there."""
        assert roles, "a worker without a role"
        worker = self.workers[worker_id]
        worker.touch()
        self.departures.set_roles(worker, roles)

    def topology(self) -> Topology:
        """Return the workers and which pairs of them exchange blocks."""
        workers = list(self.workers.values())
        return Topology(
            handoff=self.settings.handoff,
            workers=tuple(map(_worker_entry, workers)),
            pairs=tuple(
                self._pair_entry(source, receiver)
                for source in workers
                for receiver in workers
                if _is_pair(source, receiver)
            ),
            warnings=tuple(self._warnings()),
        )

    def begin_probe(self, prefill: bytes, decode: bytes, timeout_seconds: float) -> int:
        """Compute some blocks on one worker and move them to another; return the probe's number.

        Raises:
            InvalidRequestError: These two exchange nothing.
            UnavailableError: One of them is gone.
        """
        source, receiver = self.workers.get(prefill), self.workers.get(decode)
        if source is None or receiver is None:
            raise UnavailableError("the worker is gone")
        reason = "it is one worker" if source is receiver else self._refusal(source, receiver)
        if reason is not None:
            raise InvalidRequestError(reason, field="worker")
        block_size = source.info.model.block_size
        most = min(source.info.num_blocks, receiver.info.num_blocks) // 4
        num_blocks = min(NUM_BLOCKS, (source.info.model.max_model_len - 1) // block_size, most)
        if num_blocks < 1:
            raise InvalidRequestError("there is no room for a block of a probe", field="worker")
        self._num_probes += 1
        probe = Probe(self._num_probes, source, receiver, num_blocks, self.now)
        sequence = probe_sequence(probe, self.settings.generation)
        self.probes[probe.number] = (probe, sequence)
        begin_handoff(source, receiver, sequence, timeout_seconds, self.now)
        return probe.number

    def take_probes(self) -> list[tuple[int, ProbeOutcome]]:
        """Return the probes that have ended, each once."""
        ended = []
        for number, (probe, _) in self.probes.items():
            if probe.outcome is not None:
                ended.append((number, probe.outcome))
                probe.outcome = None
        return ended

    def end_probe(self, number: int) -> None:
        """Let go what both workers keep for a probe, which need not have ended."""
        probe, sequence = self.probes.pop(number, (None, None))
        if probe is None or sequence is None:
            return
        if not sequence.state.is_finished:
            assert sequence.queue is not None, "a probe waits nowhere"
            sequence.queue.remove(sequence)
            if sequence.handoff is not None:
                end_handoff(sequence.handoff)
            sequence.advance(State.FINISHED_ABORTED)
            sequence.worker = None
            probe.receiver.touch()
        probe.release()

    def _pair_entry(self, source: WorkerState, receiver: WorkerState) -> PairEntry:
        facts = receiver.pairs.get(source.info.worker_id, PairFacts())
        return PairEntry(
            prefill=source.info.worker_id,
            decode=receiver.info.worker_id,
            refusal=self._refusal(source, receiver),
            transport=facts.transport,
            bytes_per_second=facts.bytes_per_second,
            num_transfers=facts.num_transfers,
            num_failures=facts.num_failures,
        )

    def _refusal(self, source: WorkerState, receiver: WorkerState) -> str | None:
        if not self._is_caching:
            return "prefix caching is off, and what is handed off is found in the cache"
        return refusal(source.info, receiver.info)

    def _warnings(self) -> Iterator[str]:
        for model, _ in self.queues.models():
            workers = self.queues.workers(model.name)
            having = {role: [one for one in workers if role in one.roles] for role in Role}
            if not having[Role.DECODE]:
                yield f"no worker of {model.name} is to generate: those for prompts do it, too"
            elif not having[Role.PREFILL]:
                yield f"no worker of {model.name} is to compute prompts: the others do it, too"
            apart = [one for one in having[Role.PREFILL] if Role.DECODE not in one.roles]
            if not apart or not having[Role.DECODE]:
                continue
            if self.settings.handoff == "never":
                yield f"workers of {model.name} are for prompts only, and --handoff is never"
            pairs = [(source, one) for source in apart for one in having[Role.DECODE]]
            if all(self._refusal(*pair) is not None for pair in pairs):
                yield f"workers of {model.name} are for prompts only, and none can hand them off"


def _is_pair(source: WorkerState, receiver: WorkerState) -> bool:
    is_one_model = source.info.model.name == receiver.info.model.name
    is_apart = source is not receiver and is_one_model
    return is_apart and Role.PREFILL in source.roles and Role.DECODE in receiver.roles


def _worker_entry(worker: WorkerState) -> WorkerEntry:
    info = worker.info
    return WorkerEntry(
        worker_id=info.worker_id,
        model=info.model.name,
        roles=worker.roles,
        is_draining=worker.is_draining,
        kv_endpoint=info.kv_endpoint,
        kv_transports=info.kv_transports,
        layout_fingerprint=info.layout_fingerprint,
        num_running=len(worker.running),
        num_waiting=worker.num_sequences - len(worker.running),
        max_num_seqs=len(worker.slots),
    )
