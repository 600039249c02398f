"""MLPs and mixtures of experts on Triton kernels."""

from dataclasses import dataclass

from torch import Tensor

from pagewire_worker.families.plan import ExpertsSpec, MlpSpec
from pagewire_worker.models.linear_loader import LinearLoader, MlpLinears
from pagewire_worker.models.load_parts import RouterTensors
from pagewire_worker.triton_kernels.activate import activate
from pagewire_worker.triton_kernels.expert_matmul import collect_experts, expert_matmul
from pagewire_worker.triton_kernels.route_tokens import route_tokens, sort_rows
from pagewire_worker.triton_kernels.tile_matmul import Tile, tile_matmul


@dataclass(frozen=True, slots=True)
class TritonMlp:
    """An MLP with its matrices."""

    spec: MlpSpec
    linears: MlpLinears

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]."""
        spec = self.spec
        up = activate(self.linears.up(x), spec.activation, is_gated=spec.is_gated)
        return self.linears.down(up)


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonExperts:
    """A mixture of experts whose matrices lie in two tensors.

    Attributes:
        up: [experts, 2 * size, hidden], gates first.
        down: [experts, hidden, size].
    """

    spec: ExpertsSpec
    router: RouterTensors
    up: Tensor
    down: Tensor
    shared: TritonMlp | None

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]."""
        spec = self.spec.router
        values = tile_matmul(x.float(), self.router.weight, self.router.bias)
        weights, chosen = route_tokens(
            spec, values, self.router.choice_bias, has_gate=self.spec.has_shared_gate
        )
        tiles = [Tile.of(x.dtype, one.shape[1]) for one in (self.up, self.down)]
        rows = sort_rows(chosen, spec.num_experts, tiles[0].rows)
        up = expert_matmul(x, self.up, rows, tiles[0], spec.num_chosen)
        activated = activate(up, self.spec.experts[0].activation)
        down = expert_matmul(activated, self.down, rows, tiles[1], 1)
        return collect_experts(down, weights, None if self.shared is None else self.shared(x))


def load_mlp(spec: MlpSpec | ExpertsSpec, linears: LinearLoader) -> TritonMlp | TritonExperts:
    """Load an MLP or experts. Raises StartupError naming the tensor at fault."""
    if isinstance(spec, MlpSpec):
        return TritonMlp(spec, linears.load_mlp(spec))
    shared = spec.shared
    return TritonExperts(
        spec=spec,
        router=linears.load_router(spec.router),
        up=linears.load_stacked([one.up for one in spec.experts]),
        down=linears.load_stacked([one.down for one in spec.experts]),
        shared=None if shared is None else TritonMlp(shared, linears.load_mlp(shared)),
    )
