"""Describes a stage, some consecutive layers of a model, beside the plan of these layers."""

from dataclasses import dataclass
from typing import Final

from pagewire_worker.kv.kv_cache import CacheShape, LayerGroup


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What a plan of some layers must know of the whole model.

    Attributes:
        is_first: It looks tokens up.
        is_last: It has the norm and the logits.
        groups, window: As in CacheShape. Groups are those of the whole model, each with the layers
            that the stage has, by their places in it, which may be none.
    """

    is_first: bool
    is_last: bool
    groups: tuple[LayerGroup, ...] = ()
    window: int | None = None

    @classmethod
    def of(cls, shape: CacheShape, layers: range) -> "StageSpec":
        """Return the stage of these layers of a model whose cache has this `shape`."""
        return cls(
            is_first=layers.start == 0,
            is_last=layers.stop == shape.num_layers,
            groups=tuple(_part(group, layers) for group in shape.groups),
            window=shape.window,
        )


ALL_LAYERS: Final = StageSpec(is_first=True, is_last=True)
"""Of a model that is not cut."""


def _part(group: LayerGroup, layers: range) -> LayerGroup:
    own = (layer - layers.start for layer in group.layers if layer in layers)
    return LayerGroup(tuple(own), group.window)
