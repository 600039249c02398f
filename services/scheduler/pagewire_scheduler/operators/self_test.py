"""Self-test of a cell: runs a probe for every pair of workers and compares the digests of the moved
blocks on both. The core runs the probes."""

import asyncio
from collections.abc import Sequence
from typing import Final

from pagewire_scheduler.core.data.topology import (
    CellReport,
    PairEntry,
    ProbeOutcome,
    ProbeReport,
    Topology,
)
from pagewire_scheduler.core.data.worker_info import ALL_ROLES
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.links.worker_link import WorkerLink
from pagewire_shared.errors import PagewireError
from pagewire_shared.identity.ids import BlockName, short

DEFAULT_TIMEOUT_SECONDS: Final = 10.0
DIGEST_BYTES: Final = 32

_PROBE_SHARE = 0.75
"""Share of the time for the probes; the rest is for the digests."""
_NO_ANSWER = "it did not end in time"


class SelfTest:
    """Runs all probes of a cell at once."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop
        self._num_queries = 0

    async def run(self, timeout_seconds: float) -> CellReport:
        """Return the outcome of every pair of the topology within the time."""
        topology = self._loop.topology()
        deadline = self._loop.clock() + timeout_seconds
        runs = [self._probe(pair, deadline, timeout_seconds) for pair in topology.pairs]
        probes = await asyncio.gather(*runs)
        return CellReport(probes, _problems(topology, probes))

    async def _probe(self, pair: PairEntry, deadline: float, timeout_seconds: float) -> ProbeReport:
        result = ProbeReport(pair.prefill, pair.decode)
        if pair.refusal is not None:
            result.error = pair.refusal
            return result
        try:
            probe_id, outcome = self._loop.begin_probe(
                pair.prefill, pair.decode, timeout_seconds * _PROBE_SHARE
            )
        except PagewireError as error:
            result.error = error.message
            return result
        try:
            async with asyncio.timeout(deadline - self._loop.clock()):
                await self._compare(await outcome, result)
        except TimeoutError:
            result.error = _NO_ANSWER
        finally:
            self._loop.end_probe(probe_id)
        return result

    async def _compare(self, outcome: ProbeOutcome, result: ProbeReport) -> None:
        """Fill in `result`. The workers keep the blocks until the probe is ended."""
        result.num_blocks = len(outcome.names)
        result.num_bytes = outcome.num_bytes
        result.seconds = outcome.seconds
        result.transport = outcome.transport
        if outcome.error is not None or not outcome.names:
            result.error = outcome.error or "no block arrived"
            return
        computed, received = await asyncio.gather(
            self._digests(outcome.prefill, outcome.names),
            self._digests(outcome.decode, outcome.names),
        )
        if computed is None or received is None:
            gone = outcome.prefill if computed is None else outcome.decode
            result.error = f"worker {short(gone)} has left"
        elif not _is_complete(computed, outcome.names) or not _is_complete(received, outcome.names):
            which = outcome.decode if _is_complete(computed, outcome.names) else outcome.prefill
            result.error = f"worker {short(which)} does not hold all of the blocks"
        else:
            result.is_equal = computed == received

    async def _digests(self, worker_id: bytes, names: Sequence[BlockName]) -> bytes | None:
        """Return the digests of a worker's blocks `names`; None when it leaves meanwhile."""
        link = self._loop.workers.get(worker_id)
        if not isinstance(link, WorkerLink):
            return None
        self._num_queries += 1
        answer = link.ask_digests(self._num_queries, names)
        try:
            # The link cancels the answer when its stream ends; this task is not cancelled then.
            await asyncio.wait([answer])
            return None if answer.cancelled() else answer.result()
        finally:
            answer.cancel()


def _is_complete(digests: bytes, names: Sequence[BlockName]) -> bool:
    if len(digests) != DIGEST_BYTES * len(names):
        return False
    parts = [digests[i : i + DIGEST_BYTES] for i in range(0, len(digests), DIGEST_BYTES)]
    return all(map(any, parts))


def _problems(topology: Topology, probes: Sequence[ProbeReport]) -> list[str]:
    """Return the problems, one sentence each; `probes` has one entry per pair."""
    problems = []
    model_of = {worker.worker_id: worker.model for worker in topology.workers}
    moved = set()
    for pair, probe in zip(topology.pairs, probes, strict=True):
        if pair.refusal is not None:
            continue
        name = f"{short(pair.prefill)} to {short(pair.decode)}"
        if probe.error:
            problems.append(f"{name}: {probe.error}")
        elif not probe.is_equal:
            problems.append(f"{name}: the bytes that arrived are not those that were computed")
        else:
            moved.add(model_of[pair.decode])
    parted = {worker.model for worker in topology.workers if worker.roles != ALL_ROLES}
    problems += [
        f"no pair of workers exchanges KV blocks of {model}" for model in sorted(parted - moved)
    ]
    if topology.handoff == "never":
        problems += [
            f"workers of {model} have one role, and --handoff is never" for model in sorted(parted)
        ]
    if not topology.workers:
        problems.append("no worker is attached")
    return problems
