"""Mixtures of experts in GGUF files: their settings, and where the matrix of one expert lies.

llama.cpp stores a matrix of all experts of a layer as one tensor [experts, outputs, inputs].
Files do not say whether weights are normalised: that is fixed there for each architecture
(build_moe_ffn in src/models).
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pagewire_worker.convert.gguf_grouped_experts import (
    FIELDS,
    LATENTS,
    ROUTER,
    GetValue,
    deepseek_fields,
    glm_fields,
)

_STACKED = re.compile(r"blk\.(\d+)\.ffn_(gate|up|down)_exps\.(weight|bias)")
_SINGLE = re.compile(r"blk\.(\d+)\.(\w+\.(?:weight|bias))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertNames:
    """What transformers calls the tensors of an architecture that others do not have.

    Attributes:
        model_type: In config.json.
        experts: The part of a layer that holds the experts.
        matrices: llama.cpp's names of an expert's matrices to those of transformers.
        singles: Other tensors of a layer.
        fields: Fields of config.json to llama.cpp's keys; a field without its key is left out.
        constants: Fields that the files do not say.
        rope: Fields of a rotary scaling that the files do not say.
        ends: Tokens that end an answer beside those that the files name.
        can_be_written: Single experts are a checkpoint of transformers, too.
        further: Makes fields of settings and of the names of tensors.
        rotates_a_part: The file says how much of a head is rotated.
    """

    model_type: str
    experts: str
    matrices: Mapping[str, str]
    singles: Mapping[str, str]
    fields: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    rope: Mapping[str, Any] = field(default_factory=dict)
    ends: tuple[str, ...] = ()
    can_be_written: bool = True
    further: Callable[[GetValue, Collection[str]], dict[str, Any]] | None = None
    rotates_a_part: bool = False

    def config(self, value: GetValue, names: Collection[str]) -> dict[str, Any]:
        """Return the fields of config.json that belong to experts; `names` are of tensors."""
        found = {name: value(key, 0) for name, key in self.fields.items()}
        kept = {name: one for name, one in found.items() if one}
        further = {} if self.further is None else self.further(value, names)
        return {"model_type": self.model_type, **kept, **self.constants, **further}

    def stacked(self, name: str) -> tuple[str, str] | None:
        """Return what stands before and behind an expert's number in the names of its tensors.

        None where `name`, of llama.cpp, is not one tensor of all experts.
        """
        found = _STACKED.fullmatch(name)
        if found is None:
            return None
        before = f"model.layers.{found[1]}.{self.experts}."
        return before, f".{self.matrices[found[2]]}.{found[3]}"

    def single(self, name: str) -> str | None:
        """Return the name of a tensor among `singles`; None for others."""
        found = _SINGLE.fullmatch(name)
        if found is None or found[2] not in self.singles:
            return None
        return f"model.layers.{found[1]}.{self.singles[found[2]]}"


_GATED: Final = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
_CHOSEN: Final = {"num_experts_per_tok": "expert_used_count"}
_QWEN: Final = {
    **_CHOSEN,
    "num_experts": "expert_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
_ROUTER: Final = {"ffn_gate_inp.weight": "mlp.gate.weight"}

EXPERTS: Final[Mapping[str, ExpertNames]] = {
    "deepseek2": ExpertNames(
        model_type="deepseek_v2",
        experts="mlp.experts",
        matrices=_GATED,
        singles={**ROUTER, **LATENTS},
        fields=FIELDS,
        can_be_written=False,
        further=deepseek_fields,
        rotates_a_part=True,
    ),
    "glm4moe": ExpertNames(
        model_type="glm4_moe",
        experts="mlp.experts",
        matrices=_GATED,
        singles={
            **ROUTER,
            "post_attention_norm.weight": "post_attention_layernorm.weight",
        },
        fields=FIELDS,
        further=glm_fields,
        rotates_a_part=True,
    ),
    "gpt-oss": ExpertNames(
        model_type="gpt_oss",
        experts="mlp.experts",
        matrices=_GATED,
        singles={
            "attn_sinks.weight": "self_attn.sinks",
            "ffn_gate_inp.weight": "mlp.router.weight",
            "ffn_gate_inp.bias": "mlp.router.bias",
            "post_attention_norm.weight": "post_attention_layernorm.weight",
        },
        fields={
            **_CHOSEN,
            "num_local_experts": "expert_count",
            "intermediate_size": "expert_feed_forward_length",
            "sliding_window": "attention.sliding_window",
        },
        rope={"truncate": False},
        ends=("<|return|>", "<|call|>"),
        can_be_written=False,
    ),
    "llama": ExpertNames(
        model_type="mixtral",
        experts="block_sparse_moe.experts",
        matrices={"gate": "w1", "up": "w3", "down": "w2"},
        singles={"ffn_gate_inp.weight": "block_sparse_moe.gate.weight"},
        fields={**_CHOSEN, "num_local_experts": "expert_count"},
    ),
    "olmoe": ExpertNames(
        model_type="olmoe",
        experts="mlp.experts",
        matrices=_GATED,
        singles=_ROUTER,
        fields={**_CHOSEN, "num_experts": "expert_count"},
        constants={"norm_topk_prob": False},
    ),
    "qwen2moe": ExpertNames(
        model_type="qwen2_moe",
        experts="mlp.experts",
        matrices=_GATED,
        singles={
            **_ROUTER,
            "ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight",
            "ffn_gate_shexp.weight": "mlp.shared_expert.gate_proj.weight",
            "ffn_up_shexp.weight": "mlp.shared_expert.up_proj.weight",
            "ffn_down_shexp.weight": "mlp.shared_expert.down_proj.weight",
        },
        fields={
            **_QWEN,
            "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
        },
        constants={"norm_topk_prob": False},
    ),
    "qwen3moe": ExpertNames(
        model_type="qwen3_moe",
        experts="mlp.experts",
        matrices=_GATED,
        singles=_ROUTER,
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
    if len(shape) == 3:
        # Matrices of all heads, one below the other.
        data, shape = data.reshape(-1, data.shape[-1]), (shape[0], shape[1] * shape[2])
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
    """Yield the part of each expert of a tensor of all experts of a layer."""
    *sizes, count = (int(size) for size in tensor.shape)
    num_bytes = int(tensor.n_bytes) // count
    for number in range(count):
        yield NamedTensor(
            name=f"{before}{number}{behind}",
            data=tensor.data[number],
            tensor_type=tensor.tensor_type,
            data_offset=int(tensor.data_offset) + number * num_bytes,
            n_bytes=num_bytes,
            shape=tuple(sizes),
        )
