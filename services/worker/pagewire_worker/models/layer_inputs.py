"""The inputs of a layer of the decoder in torch, besides hidden states."""

from dataclasses import dataclass

from torch import Tensor

from pagewire_worker.backend.attention import StepAttention
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.layers.rotary import Rotation


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """What a layer reads besides the hidden states; `faults` as in StepBatch."""

    rotation: Rotation | None
    slot_mapping: Tensor
    cache: LayerCache
    attend: StepAttention
    faults: Tensor | None = None
