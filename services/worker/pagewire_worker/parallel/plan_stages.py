"""Cuts a model into stages of consecutive layers (Huang et al., 2019): the plan of one of them."""

from dataclasses import dataclass, replace

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.families.plan import LayerSpec, ModelPlan
from pagewire_worker.families.specs.stage_spec import StageSpec


@dataclass(frozen=True, slots=True)
class PlanStage:
    """The model of one stage.

    Attributes:
        plan: Of its layers.
        unread: Tensors that other stages read; with a dot at its end, a name stands for all that
            begin with it.
    """

    plan: ModelPlan
    unread: tuple[str, ...] = ()


def layers_of(num_layers: int, stage: int, num_stages: int) -> range:
    """Return the layers of a stage; the first stages have one more where it does not come out."""
    size, num_larger = divmod(num_layers, num_stages)
    first = stage * size + min(stage, num_larger)
    return range(first, first + size + (stage < num_larger))


def cut_stage(plan: ModelPlan, topology: RankTopology) -> PlanStage:
    """Return the stage of a rank. Raises StartupError if there are fewer layers than stages."""
    if topology.num_stages == 1:
        return PlanStage(plan)
    num_layers = len(plan.layers)
    if topology.num_stages > num_layers:
        raise StartupError(
            f"--pipeline-parallel-size: {topology.num_stages} stages are more than the"
            f" {num_layers} layers of the model",
            field="pipeline_parallel_size",
        )
    own = layers_of(num_layers, topology.stage, topology.num_stages)
    spec = StageSpec.of(plan.cache_shape, own)
    stage = replace(plan, layers=plan.layers[own.start : own.stop], stage=spec)
    return PlanStage(stage, _unread(plan, stage, own))


def _unread(plan: ModelPlan, stage: ModelPlan, own: range) -> tuple[str, ...]:
    names = [_begin_of(one) for number, one in enumerate(plan.layers) if number not in own]
    if not stage.reads_embedding:
        names.append(f"{plan.embedding}.")
    if not stage.ends.is_last:
        names += [f"{name}." for name in (plan.norm.name, plan.logits.name) if name is not None]
    return (*names, *plan.unused)


def _begin_of(layer: LayerSpec) -> str:
    """Return the begin of the names of a layer's tensors, such as "model.layers.3."."""
    name, _ = layer.attention.qkv.parts[0]
    begin, _, _ = name.rsplit(".", 2)
    return f"{begin}."
