"""Mixtures of experts in GGUF files: their settings, and where the matrix of one expert lies.

llama.cpp stores a matrix of all experts of a layer as one tensor [experts, outputs, inputs].
Files do not say whether weights are normalised: that is fixed there for each architecture
(build_moe_ffn in src/models).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_STACKED = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down)_exps\.weight")
_ROUTERS: Final = {
    "ffn_gate_inp": "gate",
    "ffn_gate_inp_shexp": "shared_expert_gate",
    "ffn_gate_shexp": "shared_expert.gate_proj",
    "ffn_up_shexp": "shared_expert.up_proj",
    "ffn_down_shexp": "shared_expert.down_proj",
}
_OTHERS = re.compile(r"blk\.(\d+)\.(\w+)\.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertNames:
    """What transformers calls the experts of an architecture.

    Attributes:
        model_type: In config.json.
        module: The part of a layer that holds router and experts.
        matrices: llama.cpp's names of an expert's matrices to those of transformers.
        fields: Fields of config.json to llama.cpp's keys; a field without its key is left out.
        constants: Fields that the files do not say.
    """

    model_type: str
    module: str
    matrices: Mapping[str, str]
    fields: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)

    def config(self, value: Callable[[str, Any], Any]) -> dict[str, Any]:
        """Return the fields of config.json that belong to experts.

        Args:
            value: Returns what the file has for a key, or the given default.
        """
        found = {name: value(key, 0) for name, key in self.fields.items()}
        kept = {name: one for name, one in found.items() if one}
        return {"model_type": self.model_type, **kept, **self.constants}

    def stacked(self, name: str) -> tuple[str, str] | None:
        """Return what stands before and behind an expert's number in the names of its matrices.

        None where `name`, of llama.cpp, is not one matrix of all experts.
        """
        found = _STACKED.fullmatch(name)
        if found is None:
            return None
        before = f"model.layers.{found[1]}.{self.module}.experts."
        return before, f".{self.matrices[found[2]]}.weight"

    def single(self, name: str) -> str | None:
        """Return the name of a router or of a shared expert's matrix; None for other tensors."""
        found = _OTHERS.fullmatch(name)
        if found is None or found[2] not in _ROUTERS:
            return None
        return f"model.layers.{found[1]}.{self.module}.{_ROUTERS[found[2]]}.weight"


_GATED: Final = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
_CHOSEN: Final = {"num_experts_per_tok": "expert_used_count"}
_QWEN: Final = {
    **_CHOSEN,
    "num_experts": "expert_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}

EXPERTS: Final[Mapping[str, ExpertNames]] = {
    "llama": ExpertNames(
        model_type="mixtral",
        module="block_sparse_moe",
        matrices={"gate": "w1", "up": "w3", "down": "w2"},
        fields={**_CHOSEN, "num_local_experts": "expert_count"},
    ),
    "qwen2moe": ExpertNames(
        model_type="qwen2_moe",
        module="mlp",
        matrices=_GATED,
        fields={
            **_QWEN,
            "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
        },
        constants={"norm_topk_prob": False},
    ),
    "qwen3moe": ExpertNames(
        model_type="qwen3_moe",
        module="mlp",
        matrices=_GATED,
        fields=_QWEN,
        constants={"norm_topk_prob": True},
    ),
}
"""By `general.architecture` of files with experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTensor:
    """A tensor of a GGUF file with its name in transformers.

    Attributes:
        data: As numpy sees it, mapped.
        tensor_type: Of the package gguf.
        data_offset, n_bytes: Its place in the file.
        shape: The inputs first, as llama.cpp has it.
        num_heads: Heads whose rows llama.cpp has moved; 0 for none.
    """

    name: str
    data: Any
    tensor_type: Any
    data_offset: int
    n_bytes: int
    shape: tuple[int, ...]
    num_heads: int = 0


def named(name: str, tensor: Any, num_heads: int = 0) -> NamedTensor:
    """Return a tensor of the package gguf under the name of transformers."""
    data, shape = tensor.data, tuple(int(size) for size in tensor.shape)
    if name.endswith("shared_expert_gate.weight") and len(shape) == 1:
        # A matrix with one output there, a vector here.
        data, shape = data.reshape(1, -1), (*shape, 1)
    return NamedTensor(
        name=name,
        data=data,
        tensor_type=tensor.tensor_type,
        data_offset=int(tensor.data_offset),
        n_bytes=int(tensor.n_bytes),
        shape=shape,
        num_heads=num_heads,
    )


def single_experts(before: str, behind: str, tensor: Any) -> Iterator[NamedTensor]:
    """Yield the matrix of each expert of a tensor of all experts of a layer."""
    inputs, outputs, count = (int(size) for size in tensor.shape)
    num_bytes = int(tensor.n_bytes) // count
    for number in range(count):
        yield NamedTensor(
            name=f"{before}{number}{behind}",
            data=tensor.data[number],
            tensor_type=tensor.tensor_type,
            data_offset=int(tensor.data_offset) + number * num_bytes,
            n_bytes=num_bytes,
            shape=(inputs, outputs),
        )
