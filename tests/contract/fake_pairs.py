"""The part of the core that decides about pairs of workers, scripted: what moves is what a test
says."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pagewire_scheduler.core.data.topology import PairEntry, ProbeOutcome, Topology, WorkerEntry
from pagewire_scheduler.core.data.worker_info import ALL_ROLES, Role
from pagewire_scheduler.links.loop import StepLoop
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.transport import KvTransport

NAMES = (BlockName(b"a" * 16), BlockName(b"b" * 16))


def moved(prefill: bytes, decode: bytes, **changes: Any) -> ProbeOutcome:
    """The outcome of a probe that brought two blocks."""
    facts: dict[str, Any] = {
        "names": NAMES,
        "num_bytes": 128,
        "seconds": 0.25,
        "transport": KvTransport.SHARED_MEMORY,
        "error": None,
    }
    return ProbeOutcome(prefill=prefill, decode=decode, **{**facts, **changes})


@dataclass
class FakePairs:
    """Takes the place of those methods of a core."""

    loop: StepLoop
    pairs: list[PairEntry] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    outcome: Callable[[bytes, bytes], ProbeOutcome | None] = moved
    """None for a probe that never ends."""
    roles: dict[bytes, frozenset[Role]] = field(default_factory=dict)
    begun: list[tuple[bytes, bytes, float]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """The core's time in each call that changes roles."""
    due: list[tuple[int, ProbeOutcome]] = field(default_factory=list)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "FakePairs":
        core = self.loop.core
        monkeypatch.setattr(core, "set_roles", self.set_roles)
        monkeypatch.setattr(core, "topology", self.topology)
        monkeypatch.setattr(core.probes, "begin", self.begin_probe)
        monkeypatch.setattr(core.probes, "take_ended", self.take_probes)
        monkeypatch.setattr(core.probes, "end", self.end_probe)
        return self

    def pair(self, prefill: bytes, decode: bytes, refusal: str | None = None) -> None:
        self.pairs.append(
            PairEntry(
                prefill=prefill,
                decode=decode,
                refusal=refusal,
                transport=None if refusal else KvTransport.GRPC,
                bytes_per_second=None if refusal else 1e6,
                num_transfers=0 if refusal else 3,
                num_failures=1,
            )
        )

    def set_roles(self, worker_id: bytes, roles: frozenset[Role]) -> None:
        self.roles[worker_id] = roles
        self.times.append(self.loop.core.now)

    def topology(self) -> Topology:
        workers = tuple(
            WorkerEntry(
                worker_id=worker_id,
                model=worker.info.model.name,
                roles=self.roles.get(worker_id, ALL_ROLES),
                is_draining=False,
                kv_endpoint="127.0.0.1:5",
                kv_transports=(KvTransport.GRPC,),
                layout_fingerprint=b"\x0f" * 16,
                num_running=1,
                num_waiting=2,
                max_num_seqs=256,
            )
            for worker_id, worker in self.loop.core.workers.items()
        )
        pairs = tuple(self.pairs)
        return Topology(handoff="auto", workers=workers, pairs=pairs, warnings=self.warnings)

    def begin_probe(self, prefill: bytes, decode: bytes, timeout_seconds: float) -> int:
        self.begun.append((prefill, decode, timeout_seconds))
        outcome = self.outcome(prefill, decode)
        if outcome is not None:
            self.due.append((len(self.begun), outcome))
        return len(self.begun)

    def take_probes(self) -> list[tuple[int, ProbeOutcome]]:
        due, self.due = self.due, []
        return due

    def end_probe(self, probe_id: int) -> None:
        self.ended.append(probe_id)
