"""Converts plain data about workers, pairs and probes to messages."""

from collections.abc import Mapping, Sequence

from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_scheduler.convert.timeline import microseconds
from pagewire_scheduler.convert.worker import roles_to_message
from pagewire_scheduler.core.data.topology import (
    CellReport,
    ModelEntry,
    PairEntry,
    ProbeReport,
    Topology,
    WorkerEntry,
)
from pagewire_shared.kv.transport_convert import transport_to_message
from pagewire_shared.sleep.convert import sleep_to_message
from pagewire_shared.weights.convert import version_to_message


def cell_topology(
    topology: Topology,
    generation: int,
    tiers: Mapping[str, Sequence[admin_pb2.StoreTier]],
) -> admin_pb2.CellTopology:
    """Return the wire form of a cell; `tiers` are those of its stores, by their addresses."""
    return admin_pb2.CellTopology(
        generation=generation,
        handoff=topology.handoff,
        workers=[worker_topology(worker) for worker in topology.workers],
        pairs=[_pair(pair) for pair in topology.pairs],
        warnings=topology.warnings,
        stores=[
            admin_pb2.StoreTopology(
                address=store.address,
                is_up=store.is_up,
                num_blocks=store.num_blocks,
                tiers=tiers.get(store.address, ()),
            )
            for store in topology.stores
        ],
        kvstore_copies=topology.num_copies,
        models=[_model(entry) for entry in topology.models],
    )


def _model(entry: ModelEntry) -> admin_pb2.ModelTopology:
    totals = entry.totals
    return admin_pb2.ModelTopology(
        model=entry.model,
        num_queried_tokens=totals.num_queried_tokens,
        found_tokens=totals.found_tokens(),
        num_lost_workers=totals.num_lost_workers,
        num_requeued_sequences=totals.num_requeued,
        num_preemptions=totals.num_preemptions,
    )


def worker_topology(worker: WorkerEntry) -> admin_pb2.WorkerTopology:
    """Return the wire form of one worker."""
    return admin_pb2.WorkerTopology(
        worker=worker.worker_id.hex(),
        model=worker.model,
        roles=roles_to_message(worker.roles),
        is_draining=worker.is_draining,
        kv_endpoint=worker.kv_endpoint,
        kv_transports=[transport_to_message(transport) for transport in worker.kv_transports],
        layout=worker.layout_fingerprint.hex(),
        num_running=worker.num_running,
        num_waiting=worker.num_waiting,
        max_num_seqs=worker.max_num_seqs,
        sleep=None if worker.sleep is None else sleep_to_message(worker.sleep),
        weights=version_to_message(worker.weights),
    )


def cell_self_test(report: CellReport, generation: int) -> admin_pb2.CellSelfTest:
    """Return the wire form of a self-test."""
    return admin_pb2.CellSelfTest(
        generation=generation,
        probes=[_probe(probe) for probe in report.probes],
        problems=report.problems,
    )


def _probe(probe: ProbeReport) -> admin_pb2.ProbeResult:
    return admin_pb2.ProbeResult(
        prefill=probe.prefill.hex(),
        decode=probe.decode.hex(),
        num_blocks=probe.num_blocks,
        num_bytes=probe.num_bytes,
        transport=None if probe.transport is None else transport_to_message(probe.transport),
        is_equal=probe.is_equal,
        time_us=microseconds(probe.seconds),
        error=probe.error,
    )


def _pair(pair: PairEntry) -> admin_pb2.PairTopology:
    return admin_pb2.PairTopology(
        prefill=pair.prefill.hex(),
        decode=pair.decode.hex(),
        refusal=pair.refusal or "",
        transport=None if pair.transport is None else transport_to_message(pair.transport),
        bytes_per_second=pair.bytes_per_second,
        num_transfers=pair.num_transfers,
        num_failures=pair.num_failures,
    )
