"""Says whether the sums of a model can be cut into slices, before its weights are read."""

from collections.abc import Iterator

from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.cpu_kernels.abi import MOST_EXPERTS
from pagewire_worker.cpu_kernels.packing import PANEL
from pagewire_worker.families.plan import LinearSpec, ModelPlan


def why_no_slices(plan: ModelPlan, slices: int, topology: RankTopology) -> str | None:
    """Return why a model of such ranks goes with no such slices; None if it does."""
    for linear in _last_linears(plan):
        if linear.num_inputs % (slices * PANEL):
            name, _ = linear.parts[0]
            return (
                f"the inputs of {name} ({linear.num_inputs}) cannot be cut into {slices} slices of"
                f" a multiple of {PANEL}"
            )
    num_experts, own = max(plan.expert_sizes.values(), default=0), slices // topology.tp_size
    if topology.has_whole_experts:
        num_experts, own = -(-num_experts // topology.tp_size), slices
    if num_experts * own > MOST_EXPERTS:
        return f"{num_experts} experts with {own} slices each are more than {MOST_EXPERTS} matrices"
    return None


def _last_linears(plan: ModelPlan) -> Iterator[LinearSpec]:
    """Yield the matrices whose inputs ranks divide, one of each shape of a layer."""
    for layer in plan.layers:
        yield layer.attention.output
        for mlp in layer.mlps:
            yield mlp.down
