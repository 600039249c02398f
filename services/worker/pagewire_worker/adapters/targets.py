"""The matrices of a model that adapters may change, found by the names of their modules."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pagewire_shared.adapters.model_shapes import NO_LAYER, ModelShapes, shapes_of, starred
from pagewire_worker.families.plan import LayerSpec, LinearSpec, MlpSpec, ModelPlan

OUTPUT: Final = "lm_head"
"""Module of the matrix for logits, also where it is that of the embedding."""

Place = Literal["layer", "expert", "embedding", "output"]
"""Where a matrix lies: in a layer, for all tokens; in an expert that a router chooses; in front of
the layers, with a row per token id in the place of its columns; or behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedLinear:
    """A matrix, made of one or more tensors, each with an adapter of its own.

    Attributes:
        layer: Number of its layer, or NO_LAYER.
        spec: Its tensors.
        order: Published row of each output; None for the published order.
        gate_size: Outputs that are gates, the first ones; None for none.
        place: Where it lies.
    """

    layer: int
    spec: LinearSpec
    order: tuple[int, ...] | None = None
    gate_size: int | None = None
    place: Place = "layer"

    @property
    def is_routed(self) -> bool:
        """Whether it belongs to an expert that a router chooses."""
        return self.place == "expert"

    @property
    def takes_memory_late(self) -> bool:
        """Whether a slot has memory for it only while its adapter changes it."""
        return self.place != "layer"

    @property
    def name(self) -> str:
        """The name of its first tensor, which no other matrix has."""
        return self.spec.parts[0][0]

    @property
    def stack(self) -> str:
        """The name of the parameter that holds this matrix of all experts of a layer; that of a
        matrix of no layer is its own."""
        if self.layer == NO_LAYER:
            return self.name
        return "down_proj" if self.gate_size is None else "gate_up_proj"

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
    """The matrices of one model, or of a stage of it, that adapters may change.

    Attributes:
        plan: Of the model.
        linears: In order of the layers, then the embedding and the matrix for logits.
        embedding, output: Of `linears`, those of no layer.
        shapes: What an adapter has to fit; the room of a slot is not in it.
    """

    def __init__(self, plan: ModelPlan) -> None:
        self.plan = plan
        self.embedding, self.output = _outer(plan)
        self.linears = (
            *(one for layer, spec in enumerate(plan.layers) for one in _linears(layer, spec)),
            *(self.embedding, self.output),
        )
        absent = self._absent()
        self._places = {
            name: (index, part)
            for index, linear in enumerate(self.linears)
            if linear not in absent
            for part, (name, _) in enumerate(linear.spec.parts)
        }
        self._indexes = {linear.name: index for index, linear in enumerate(self.linears)}
        self.shapes = self._shapes()

    @property
    def names(self) -> Mapping[str, tuple[int, int]]:
        """The matrix and the tensor within it, by the name of the module; not those of `linears`
        that other stages compute with."""
        return self._places

    def index_of(self, spec: LinearSpec) -> int | None:
        """Return the number of a matrix; None for one that adapters may not change."""
        return self._indexes.get(spec.parts[0][0])

    def _absent(self) -> list[AdaptedLinear]:
        """Return those of no layer that other stages compute with."""
        ends = self.plan.ends
        return [self.embedding] * (not ends.is_first) + [self.output] * (not ends.is_last)

    def _shapes(self) -> ModelShapes:
        matrices = (
            (name, linear.spec.num_inputs, size, linear.stack if linear.is_routed else "")
            for linear in self.linears
            for name, size in linear.spec.parts
        )
        return ModelShapes(
            shapes_of(matrices),
            tuple(self._refusals()),
            has_alternating_gates=self.plan.stacks is not None,
        )

    def _refusals(self) -> Iterator[tuple[str, str]]:
        plan = self.plan
        routers = (one.experts.router.linear for one in plan.layers if one.experts)
        for name in dict.fromkeys(starred(name)[0] for one in routers for name, _ in one.parts):
            yield name, "adapters of routers are not supported"
        if plan.attention.latent is not None:
            yield "self_attn", "adapters of latent attention are not supported"


def _outer(plan: ModelPlan) -> tuple[AdaptedLinear, AdaptedLinear]:
    """Return the embedding and the matrix for logits, with adapters of their own in any model."""
    tokens, hidden = plan.vocab_size, plan.hidden_size
    embedding = LinearSpec(parts=((plan.embedding, hidden),), num_inputs=tokens)
    output = LinearSpec(parts=((plan.logits.name or OUTPUT, tokens),), num_inputs=hidden)
    return (
        AdaptedLinear(layer=NO_LAYER, spec=embedding, place="embedding"),
        AdaptedLinear(layer=NO_LAYER, spec=output, place="output"),
    )


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
        found += _mlp_linears(layer, expert, "expert")
    return found


def _mlp_linears(layer: int, mlp: MlpSpec, place: Place = "layer") -> list[AdaptedLinear]:
    gates = mlp.size if mlp.is_gated else None
    return [
        AdaptedLinear(layer=layer, spec=mlp.up, gate_size=gates, place=place),
        AdaptedLinear(layer=layer, spec=mlp.down, place=place),
    ]
