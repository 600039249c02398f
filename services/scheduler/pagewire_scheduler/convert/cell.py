"""Converts the load of the cell to the message that one frontend gets."""

from collections.abc import Mapping

from pagewire_protos.scheduler.v1 import cell_metrics_pb2 as pb
from pagewire_scheduler.core.cell_load import SequenceCounts, WaitReason, WorkerLoad

_NOBODY = SequenceCounts()
_NONE = WorkerLoad()


def metrics_message(
    sequences: Mapping[str, SequenceCounts], workers: Mapping[str, WorkerLoad]
) -> pb.CellMetrics:
    """Return the metrics for a frontend with these `sequences`; both arguments are by model."""
    names = dict.fromkeys((*workers, *sequences))
    return pb.CellMetrics(
        models=[
            _model(name, sequences.get(name, _NOBODY), workers.get(name, _NONE)) for name in names
        ]
    )


def _model(name: str, sequences: SequenceCounts, workers: WorkerLoad) -> pb.ModelMetrics:
    waiting = sequences.num_waiting
    return pb.ModelMetrics(
        model=name,
        num_running=sequences.num_running,
        num_waiting_for_capacity=waiting[WaitReason.CAPACITY],
        num_waiting_for_adapter=waiting[WaitReason.ADAPTER],
        num_waiting_for_grammar=waiting[WaitReason.GRAMMAR],
        num_waiting_for_kv=waiting[WaitReason.KV],
        num_waiting_for_trial=waiting[WaitReason.TRIAL],
        num_workers=workers.num_workers,
        num_blocks=workers.num_blocks,
        num_used_blocks=workers.num_used_blocks,
        block_size=workers.block_size,
        steps_by_tokens=workers.steps_by_tokens,
        num_step_tokens=workers.num_step_tokens,
    )
