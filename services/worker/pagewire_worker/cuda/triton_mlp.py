"""MLPs and mixtures of experts on Triton kernels."""

from dataclasses import dataclass

from torch import Tensor

from pagewire_worker.cuda.expert_adapters import ExpertAdapters
from pagewire_worker.cuda.triton_adapters import TritonAdapterStore
from pagewire_worker.families.plan import ExpertsSpec, MlpSpec
from pagewire_worker.models.linear_loader import (
    LinearLoader,
    MlpLinears,
    StackedCodes,
    StackedLinears,
)
from pagewire_worker.models.load_parts import RouterTensors
from pagewire_worker.triton_kernels.activate import activate
from pagewire_worker.triton_kernels.code_matmul import CodeTile
from pagewire_worker.triton_kernels.expert_code_matmul import expert_code_matmul
from pagewire_worker.triton_kernels.expert_matmul import collect_experts, expert_matmul
from pagewire_worker.triton_kernels.route_tokens import SortedRows, route_tokens, sort_rows
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
    """A mixture of experts whose matrices lie in two stacks, of values or of codes.

    Attributes:
        up: Of [2 * size, hidden] each, gates first.
        down: Of [hidden, size] each.
        adapters: Those of the experts; None where the model takes none.
    """

    spec: ExpertsSpec
    router: RouterTensors
    up: StackedLinears | StackedCodes
    down: StackedLinears | StackedCodes
    shared: TritonMlp | None
    adapters: ExpertAdapters | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]."""
        spec = self.spec.router
        scores = tile_matmul(x.float(), self.router.weight, self.router.bias)
        weights, chosen = route_tokens(
            spec, scores, self.router.choice_bias, has_gate=self.spec.has_shared_gate
        )
        # Tiles of values and of codes have equally many rows.
        rows = sort_rows(chosen, spec.num_experts, CodeTile.of(x.dtype).rows)
        adapters = self.adapters
        adapted = None if adapters is None else adapters.sort(chosen)
        up = _multiply(x, self.up, rows, spec.num_chosen)
        if adapters is not None and adapted is not None:
            adapters.up.add(up, x, adapted, spec.num_chosen)
        values = _activate(up, self.spec.experts[0])
        down = _multiply(values, self.down, rows, 1)
        if adapters is not None and adapted is not None:
            adapters.down.add(down, values, adapted, 1)
        return collect_experts(down, weights, None if self.shared is None else self.shared(x))


def _multiply(
    x: Tensor, stack: StackedLinears | StackedCodes, rows: SortedRows, choices_per_row: int
) -> Tensor:
    if isinstance(stack, StackedCodes):
        tile = CodeTile.of(x.dtype)
        return expert_code_matmul(x, stack.codes, rows, tile, choices_per_row, stack.bias)
    values = Tile.of(x.dtype, stack.weight.shape[1])
    return expert_matmul(x, stack.weight, rows, values, choices_per_row, stack.bias)


def _activate(products: Tensor, spec: MlpSpec) -> Tensor:
    return activate(products, spec.activation, is_gated=spec.is_gated, clamped=spec.clamped)


def load_mlp(spec: MlpSpec | ExpertsSpec, linears: LinearLoader) -> TritonMlp | TritonExperts:
    """Load an MLP or experts. Raises StartupError naming the tensor at fault."""
    if isinstance(spec, MlpSpec):
        return TritonMlp(spec, linears.load_mlp(spec))
    shared, store = spec.shared, linears.adapters
    return TritonExperts(
        spec=spec,
        router=linears.load_router(spec.router),
        up=linears.load_stacked([one.up for one in spec.experts]),
        down=linears.load_stacked([one.down for one in spec.experts]),
        shared=None if shared is None else TritonMlp(shared, linears.load_mlp(shared)),
        adapters=store.experts(spec.experts) if isinstance(store, TritonAdapterStore) else None,
    )
