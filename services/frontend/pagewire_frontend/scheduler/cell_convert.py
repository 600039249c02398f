"""From a scheduler's message about how busy its cell is to plain data."""

from pagewire_frontend.metrics.model_load import ModelLoad
from pagewire_protos.scheduler.v1 import cell_metrics_pb2 as pb


def model_loads(message: pb.CellMetrics) -> dict[str, ModelLoad]:
    """Return the loads by served name."""
    return {one.model: _load(one) for one in message.models}


def _load(message: pb.ModelMetrics) -> ModelLoad:
    return ModelLoad(
        num_running=message.num_running,
        num_waiting_for_capacity=message.num_waiting_for_capacity,
        num_waiting_for_grammar=message.num_waiting_for_grammar,
        num_waiting_for_kv=message.num_waiting_for_kv,
        num_waiting_for_trial=message.num_waiting_for_trial,
        num_workers=message.num_workers,
        num_blocks=message.num_blocks,
        num_used_blocks=message.num_used_blocks,
        block_size=message.block_size,
        steps_by_tokens=tuple(message.steps_by_tokens),
        num_step_tokens=message.num_step_tokens,
    )
