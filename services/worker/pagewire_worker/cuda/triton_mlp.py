"""MLPs and mixtures of experts on Triton kernels."""

from dataclasses import dataclass

from torch import Tensor

from pagewire_worker.families.plan import ExpertsSpec, MlpSpec
from pagewire_worker.models.linear_loader import LinearLoader, MlpLinears, StackedLinears
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
        return self.linears.down(_activate(self.linears.up(x), self.spec))


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonExperts:
    """A mixture of experts whose matrices lie in two tensors.

    Attributes:
        up: Of [2 * size, hidden] each, gates first.
        down: Of [hidden, size] each.
    """

    spec: ExpertsSpec
    router: RouterTensors
    up: StackedLinears
    down: StackedLinears
    shared: TritonMlp | None

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]."""
        spec = self.spec.router
        values = tile_matmul(x.float(), self.router.weight, self.router.bias)
        weights, chosen = route_tokens(
            spec, values, self.router.choice_bias, has_gate=self.spec.has_shared_gate
        )
        tiles = [Tile.of(x.dtype, one.shape[1]) for one in (self.up.weight, self.down.weight)]
        rows = sort_rows(chosen, spec.num_experts, tiles[0].rows)
        up = expert_matmul(x, self.up.weight, rows, tiles[0], spec.num_chosen, self.up.bias)
        activated = _activate(up, self.spec.experts[0])
        down = expert_matmul(activated, self.down.weight, rows, tiles[1], 1, self.down.bias)
        return collect_experts(down, weights, None if self.shared is None else self.shared(x))


def _activate(products: Tensor, spec: MlpSpec) -> Tensor:
    return activate(products, spec.activation, is_gated=spec.is_gated, clamped=spec.clamped)


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
