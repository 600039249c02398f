"""Pairs the tensors of an adapter into modules, and checks them against its settings.

PEFT stores `base_model.model.<module>.lora_A.weight` [rank, inputs] and `lora_B.weight` [outputs,
rank] (peft/utils/save_and_load.py, `get_peft_model_state_dict`). The experts of a layer that one
parameter holds have one pair: lora_A [experts * rank, inputs], lora_B [outputs, rank * experts]
(peft/tuners/lora/layer.py, `ParamWrapper`), of the module `experts`, or `experts.base_layer` for
the first of two parameters.

An embedding has lora_embedding_A [rank, tokens] and lora_embedding_B [hidden, rank]: those of a
matrix whose inputs are tokens. By default PEFT also writes a copy of the model's own matrix beside
the adapters of an embedding and of the matrix for logits, `<module>.base_layer.weight`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pagewire_shared.adapters.adapter_config import AdapterConfig
from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.content_id import WEIGHTS_NAME
from pagewire_shared.adapters.tensor_header import StoredTensor

_PREFIX: Final = "base_model.model."
_DOWN: Final = ".lora_A.weight"
_UP: Final = ".lora_B.weight"
_DOWNS: Final = (_DOWN, ".lora_embedding_A")
_UPS: Final = (_UP, ".lora_embedding_B")
_COPY: Final = ".base_layer.weight"
_STACKS: Final = (".experts", ".experts.base_layer")
_REASONS: Final = {
    ".lora_magnitude_vector": "DoRA is not supported",
    ".lora_A.bias": "biases of adapters are not supported",
    ".lora_B.bias": "biases of adapters are not supported",
    "embed_tokens.weight": "an adapter cannot replace the embeddings",
    "lm_head.weight": "an adapter cannot replace the matrix for logits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterModule:
    """The adapter of one matrix: y += scaling * up (down x); or of one of each expert of a layer.

    Attributes:
        name: Of the matrix's module, as in the checkpoint: model.layers.0.self_attn.q_proj.
        rank, num_inputs, num_outputs: Sizes.
        scaling: The factor of the product.
        down: [rank, inputs]; of experts, [experts * rank, inputs].
        up: [outputs, rank]; of experts, [outputs, rank * experts].
        num_experts: None for a matrix of its own.
    """

    name: str
    rank: int
    num_inputs: int
    num_outputs: int
    scaling: float
    down: StoredTensor
    up: StoredTensor
    num_experts: int | None = None

    @property
    def num_values(self) -> int:
        """Values of both tensors."""
        return self.rank * (self.num_experts or 1) * (self.num_inputs + self.num_outputs)


def pair_tensors(
    config: AdapterConfig, tensors: Iterable[StoredTensor]
) -> tuple[tuple[AdapterModule, ...], Mapping[str, StoredTensor]]:
    """Return the modules of an adapter by name, and its copies of matrices of the model by theirs.

    Raises:
        AdapterError: A tensor is of another kind, lacks its partner, or has a shape that does not
            fit it or the settings; it names the tensor.
    """
    downs, ups, copies = _split(tensors)
    for name in sorted(downs.keys() ^ ups.keys()):
        end = _UP if name in downs else _DOWN
        raise _fault(f"{_PREFIX}{name}{end}", "it is missing")
    if not downs:
        raise AdapterError(f"{WEIGHTS_NAME}: it has no tensors of an adapter", WEIGHTS_NAME)
    found = tuple(_module(config, name, downs[name], ups[name]) for name in sorted(downs))
    if config.stacks and all(one.num_experts is None for one in found):
        raise AdapterError(
            f"{WEIGHTS_NAME}: it has no tensors of the parameters that target_parameters select",
            WEIGHTS_NAME,
        )
    for name, copy in copies.items():
        if name not in downs:
            raise _fault(copy.name, "an adapter cannot replace a matrix")
    return found, copies


def _split(tensors: Iterable[StoredTensor]) -> tuple[dict[str, StoredTensor], ...]:
    """Return the tensors down, up, and copies of the model's, by the names of their modules."""
    downs: dict[str, StoredTensor] = {}
    ups: dict[str, StoredTensor] = {}
    copies: dict[str, StoredTensor] = {}
    ends = {_COPY: copies} | dict.fromkeys(_DOWNS, downs) | dict.fromkeys(_UPS, ups)
    for tensor in tensors:
        name = tensor.name
        end = next((one for one in ends if name.endswith(one)), None)
        if end is None or not name.startswith(_PREFIX):
            reason = next((why for end, why in _REASONS.items() if name.endswith(end)), None)
            raise _fault(name, reason or f"it is not named {_PREFIX}MODULE{_DOWN} or {_UP}")
        module = name[len(_PREFIX) : -len(end)]
        if module in ends[end]:
            raise _fault(name, "its module has two adapters")
        ends[end][module] = tensor
    return downs, ups, copies


def _module(
    config: AdapterConfig, name: str, down: StoredTensor, up: StoredTensor
) -> AdapterModule:
    for tensor in (down, up):
        if len(tensor.shape) != 2 or 0 in tensor.shape:
            raise _fault(tensor.name, f"shape {list(tensor.shape)} is not that of a matrix")
    rank, num_inputs = down.shape
    if up.shape[1] != rank:
        raise _fault(up.name, f"shape {list(up.shape)} does not fit rank {rank} of lora_A")
    num_experts = None
    if config.stacks and name.endswith(_STACKS):
        num_experts, remainder = divmod(rank, config.rank)
        rank = config.rank if not remainder else rank
    elif not config.allows(name):
        raise _fault(down.name, "target_modules do not select its module")
    if rank not in {config.rank, *config.ranks}:
        raise _fault(down.name, f"rank {rank} is not that of the settings, {config.rank}")
    return AdapterModule(
        name=name,
        rank=rank,
        num_inputs=num_inputs,
        num_outputs=up.shape[0],
        scaling=config.scaling(name, rank),
        down=down,
        up=up,
        num_experts=num_experts,
    )


def _fault(name: str, text: str) -> AdapterError:
    shown = name[:200]
    return AdapterError(f"{WEIGHTS_NAME}: tensor {shown}: {text}", shown)
