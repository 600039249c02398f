"""The matrices of a model that adapters may change, found by the names of their modules."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_worker.checkpoint.tensor_names import own_name
from pagewire_worker.families.plan import LayerSpec, LinearSpec, MlpSpec, ModelPlan

# More digits than any layer has, and not so many that they cost time.
_STACK: Final = re.compile(r"model\.layers\.(\d{1,6})\.\w+\.experts(?:\.base_layer)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedLinear:
    """A matrix, made of one or more tensors, each with an adapter of its own.

    Attributes:
        layer: Number of its layer.
        spec: Its tensors.
        order: Published row of each output; None for the published order.
        gate_size: Outputs that are gates, the first ones; None for none.
        is_routed: Whether it belongs to an expert that a router chooses.
    """

    layer: int
    spec: LinearSpec
    order: tuple[int, ...] | None = None
    gate_size: int | None = None
    is_routed: bool = False

    @property
    def name(self) -> str:
        """The name of its first tensor, which no other matrix has."""
        return self.spec.parts[0][0]

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """The first output of each tensor, and the one behind its last. No order crosses them."""
        ends, end = [], 0
        for _, size in self.spec.parts:
            ends.append((end, end + size))
            end += size
        return tuple(ends)

    def order_within(self, part: int) -> list[int] | None:
        """Return the published row of each output of a tensor, counted within it."""
        if self.order is None:
            return None
        begin, end = self.bounds[part]
        return [row - begin for row in self.order[begin:end]]


class AdapterTargets:
    """The matrices of one model that adapters may change.

    Args:
        takes_routed: Whether experts that a router chooses are among them.

    Attributes:
        linears: In order of the layers.
        has_alternating_gates: Whether the rows of gates and of the values that they multiply
            alternate in a parameter that holds all experts of a layer.
    """

    def __init__(self, plan: ModelPlan, *, takes_routed: bool = True) -> None:
        self._has_latents = plan.attention.latent is not None
        self._takes_routed = takes_routed
        self.has_alternating_gates = plan.stacks is not None
        routers = (one.experts.router.linear for one in plan.layers if one.experts)
        self._routers = frozenset(name for linear in routers for name, _ in linear.parts)
        self.linears = tuple(
            one
            for layer, spec in enumerate(plan.layers)
            for one in _linears(layer, spec)
            if takes_routed or not one.is_routed
        )
        self._places = {
            name: (index, part)
            for index, linear in enumerate(self.linears)
            for part, (name, _) in enumerate(linear.spec.parts)
        }
        self._experts = _pairs(self.linears)
        self._indexes = {linear.name: index for index, linear in enumerate(self.linears)}

    @property
    def names(self) -> Mapping[str, tuple[int, int]]:
        """The matrix and the tensor within it, by the name of the module."""
        return self._places

    def index_of(self, spec: LinearSpec) -> int | None:
        """Return the number of a matrix; None for one that adapters may not change."""
        return self._indexes.get(spec.parts[0][0])

    def place(self, module: str) -> tuple[int, int]:
        """Return the number of a matrix, and of a tensor within it. Raises AdapterError."""
        # Checkpoints with towers for images nest the names of their text model.
        own = own_name(f"{module}.").removesuffix(".")
        if own not in self._places:
            raise AdapterError(f"module {module[:200]}: {self._reason(own)}", module[:200])
        return self._places[own]

    def experts(self, module: str) -> tuple[tuple[int, int], ...]:
        """Return the numbers of both matrices of each expert of a layer.

        Args:
            module: Name of the module whose parameters hold them: model.layers.0.mlp.experts, or
                the same with the end `.base_layer`.

        Raises:
            AdapterError: The model has no such experts.
        """
        match = _STACK.fullmatch(own_name(f"{module}.").removesuffix("."))
        if match is None or int(match[1]) not in self._experts:
            reason = "the layer has no experts that a router chooses"
            if not self._takes_routed:
                reason = self._reason(module)
            raise AdapterError(f"module {module[:200]}: {reason}", module[:200])
        return self._experts[int(match[1])]

    def _reason(self, module: str) -> str:
        parts = module.split(".")
        if module in self._routers:
            return "adapters of routers are not supported"
        if "experts" in parts and not self._takes_routed:
            return "adapters of experts that a router chooses are not computed by Triton's kernels"
        if module.endswith((".experts", ".experts.base_layer")):
            return "it holds all experts of a layer, and target_parameters name none of them"
        if "experts" in parts:
            return "the model has no such expert, or no such matrix in it"
        if parts[-1] in ("embed_tokens", "lm_head"):
            return "adapters of embeddings and of the matrix for logits are not supported"
        if self._has_latents and "self_attn" in parts:
            return "adapters of latent attention are not supported"
        return "the model has no matrix of this name that an adapter may change"


def _pairs(linears: Iterable[AdaptedLinear]) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return the numbers of both matrices of each expert, by the layer."""
    found: dict[int, list[int]] = {}
    for index, linear in enumerate(linears):
        if linear.is_routed:
            found.setdefault(linear.layer, []).append(index)
    return {layer: tuple(zip(own[::2], own[1::2], strict=True)) for layer, own in found.items()}


def _linears(layer: int, spec: LayerSpec) -> list[AdaptedLinear]:
    attention, found = spec.attention, []
    if attention.latent is None:
        order = attention.order_of(attention.qkv.num_outputs)
        own = None if order is None else tuple(order)
        found.append(AdaptedLinear(layer=layer, spec=attention.qkv, order=own))
        found.append(AdaptedLinear(layer=layer, spec=attention.output))
    if isinstance(spec.mlp, MlpSpec):
        return found + _mlp_linears(layer, spec.mlp)
    if spec.mlp.shared is not None:
        found += _mlp_linears(layer, spec.mlp.shared)
    for expert in spec.mlp.experts:
        found += _mlp_linears(layer, expert, is_routed=True)
    return found


def _mlp_linears(layer: int, mlp: MlpSpec, *, is_routed: bool = False) -> list[AdaptedLinear]:
    gates = mlp.size if mlp.is_gated else None
    return [
        AdaptedLinear(layer=layer, spec=mlp.up, gate_size=gates, is_routed=is_routed),
        AdaptedLinear(layer=layer, spec=mlp.down, is_routed=is_routed),
    ]
