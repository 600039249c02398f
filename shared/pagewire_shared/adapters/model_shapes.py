"""The matrices of a model that adapters may change, in a form that is small enough to send."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pagewire_shared.model_files.text_model import own_name

MAX_MATRICES: Final = 1 << 20
"""Most matrices that the shapes of a model may describe."""

NO_LAYER: Final = -1
"""In the place of a layer's number: the matrix is of no layer, as an embedding is."""

_ANY: Final = "*"
# More digits than any number of a layer has, and not so many that they cost time.
_MAX_DIGITS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetShape:
    """The matrices of one name and shape in some layers of a model.

    Attributes:
        name: Of their modules, `*` for the numbers: model.layers.*.mlp.experts.*.up_proj.
        num_inputs, num_outputs: Sizes of each.
        layers: Numbers of the layers, ascending; NO_LAYER alone for a matrix of none.
        num_experts: Experts of each layer that a router chooses; 0 for a matrix of all tokens.
        stack: Name of the parameter that holds those of all experts where a library keeps them in
            one: gate_up_proj, down_proj; empty for a matrix of all tokens.
    """

    name: str
    num_inputs: int
    num_outputs: int
    layers: tuple[int, ...]
    num_experts: int = 0
    stack: str = ""

    @property
    def is_outer(self) -> bool:
        """Whether it is of no layer."""
        return self.layers == (NO_LAYER,)

    @property
    def num_matrices(self) -> int:
        """Matrices of all layers."""
        return len(self.layers) * max(self.num_experts, 1)

    def names(self, layer: int) -> Iterator[str]:
        """Yield the names in a layer, one per expert."""
        first = self.name.replace(_ANY, str(layer), 1)
        if not self.num_experts:
            yield first
            return
        head, _, tail = first.partition(_ANY)
        yield from (f"{head}{expert}{tail}" for expert in range(self.num_experts))


@dataclass(frozen=True, slots=True)
class ModelShapes:
    """The matrices of a model that adapters may change, and what a slot has room for.

    Attributes:
        targets: The matrices.
        refusals: Dotted parts of names, `*` for numbers, of matrices that adapters may not change,
            with the reasons. They are read for names that are not among `targets`.
        has_alternating_gates: Whether the rows of gates and of the values that they multiply
            alternate in a parameter that holds all experts of a layer.
        slot_bytes: Most bytes in a slot of experts that a router chooses and of matrices of no
            layer.
        value_bytes: Bytes of a value there; 0 where the room is not known.
    """

    targets: tuple[TargetShape, ...]
    refusals: tuple[tuple[str, str], ...] = ()
    has_alternating_gates: bool = False
    slot_bytes: int = 0
    value_bytes: int = 0
    _by_name: dict[tuple[str, int], TargetShape] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = {(one.name, layer): one for one in self.targets for layer in one.layers}
        object.__setattr__(self, "_by_name", found)

    def find(self, module: str) -> TargetShape | None:
        """Return the target that a module of this name in a text model is; None for none."""
        name, numbers = starred(module)
        target = self._by_name.get((name, numbers[0] if numbers else NO_LAYER))
        if target is None or (target.num_experts and numbers[1] >= target.num_experts):
            return None
        return target

    def stacks(self, layer: int) -> Mapping[str, tuple[TargetShape, ...]]:
        """Return the targets that are in one parameter of a layer, by the name of it."""
        found: dict[str, tuple[TargetShape, ...]] = {}
        for target in self.targets:
            if target.stack and layer in target.layers:
                found[target.stack] = (*found.get(target.stack, ()), target)
        return found

    def reason(self, module: str) -> str:
        """Return why no adapter may change a module of this name in a text model."""
        parts, pattern = module.split("."), f".{starred(module)[0]}."
        for part, reason in self.refusals:
            if f".{part}." in pattern:
                return reason
        if module.endswith((".experts", ".experts.base_layer")):
            return "it holds all experts of a layer, and target_parameters name none of them"
        if "experts" in parts:
            return "the model has no such expert, or no such matrix in it"
        return "the model has no matrix of this name that an adapter may change"


def own_module(module: str) -> str:
    """Return the name that a module of a text model has where the text model stands alone."""
    # Checkpoints with towers for images nest the names of their text model.
    return own_name(f"{module}.").removesuffix(".")


def shapes_of(matrices: Iterable[tuple[str, int, int, str]]) -> tuple[TargetShape, ...]:
    """Return the targets of matrices: name of the module, inputs, outputs, and stack as above.

    The experts of a layer are numbered from 0 and have one shape.
    """
    counts: dict[tuple[str, int, int, str, int], int] = {}
    for module, num_inputs, num_outputs, stack in matrices:
        name, numbers = starred(module)
        layer = numbers[0] if numbers else NO_LAYER
        key = name, num_inputs, num_outputs, stack, layer
        counts[key] = counts.get(key, 0) + 1
    layers: dict[tuple[str, int, int, str, int], list[int]] = {}
    for (*kind, layer), count in counts.items():
        layers.setdefault((*kind, count if kind[3] else 0), []).append(layer)  # type: ignore[arg-type]
    return tuple(
        TargetShape(
            name=name,
            num_inputs=num_inputs,
            num_outputs=num_outputs,
            layers=tuple(sorted(own)),
            num_experts=num_experts,
            stack=stack,
        )
        for (name, num_inputs, num_outputs, stack, num_experts), own in layers.items()
    )


def starred(module: str) -> tuple[str, list[int]]:
    """Return the name of a module with `*` in the place of its numbers, and these."""
    parts, numbers = module.split("."), []
    for place, part in enumerate(parts):
        is_number = part.isascii() and part.isdecimal() and len(part) <= _MAX_DIGITS
        if is_number and str(int(part)) == part:  # "00" names no layer
            parts[place] = _ANY
            numbers.append(int(part))
    return ".".join(parts), numbers
