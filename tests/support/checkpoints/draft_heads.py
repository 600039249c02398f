"""Heads that draft, in the layout in which they are published, and what they compute, plainly."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

VOCAB = 512
"""Of the checkpoints of the worker's tests."""


def head_config(method: str, **fields: Any) -> dict[str, Any]:
    """config.json of a head for a target of 64 numbers and 512 tokens."""
    wide = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 400}
    return {
        "architectures": ["LlamaForCausalLM"],
        **(wide if method == "eagle3" else {}),
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 2048,
        "vocab_size": VOCAB,
        **fields,
    }


def random_head(method: str, seed: int = 0) -> dict[str, Tensor]:
    """Random tensors of a head, by their published names."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return 0.15 * torch.randn(shape, generator=generator)

    layer = "midlayer" if method == "eagle3" else "layers.0"
    num_inputs = 128 if method == "eagle3" else 64
    tensors = {
        **{f"{layer}.self_attn.{one}_proj.weight": random(64, num_inputs) for one in "qkv"},
        f"{layer}.self_attn.o_proj.weight": random(64, 64),
        f"{layer}.mlp.gate_proj.weight": random(96, 64),
        f"{layer}.mlp.up_proj.weight": random(96, 64),
        f"{layer}.mlp.down_proj.weight": random(64, 96),
        f"{layer}.post_attention_layernorm.weight": 1 + random(64),
        "embed_tokens.weight": random(VOCAB, 64),
        "fc.weight": random(64, 192 if method == "eagle3" else 128),
    }
    if method == "eagle":
        return {**tensors, "fc.bias": random(64)}
    known = torch.randperm(VOCAB, generator=generator)[:400].sort().values
    return {
        **tensors,
        f"{layer}.input_layernorm.weight": 1 + random(64),
        f"{layer}.hidden_norm.weight": 1 + random(64),
        "norm.weight": 1 + random(64),
        "lm_head.weight": random(400, 64),
        "d2t": known - torch.arange(400),
        "t2d": torch.isin(torch.arange(VOCAB), known),
    }


def write_head(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Write a head and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(
        {name: one.contiguous() for name, one in tensors.items()}, folder / "model.safetensors"
    )
    return folder


def make_chained(folder: Path) -> dict[str, Tensor]:
    """Change a target so that the last token alone decides the next; return its tensors."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, one in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensors[name] = torch.zeros_like(one)
        if name == "model.norm.weight":
            tensors[name] = torch.ones_like(one)
    save_file(tensors, path, metadata={"format": "pt"})
    return tensors


def knowing_head(method: str, target: dict[str, Tensor]) -> dict[str, Tensor]:
    """A head that knows what follows each token in a target of `make_chained`."""
    found = {
        name: torch.zeros_like(one) if one.is_floating_point() else one
        for name, one in random_head(method).items()
    }
    eye = torch.eye(64)
    for name in found:
        if "norm" in name:
            found[name] = torch.ones(64)
    del found["embed_tokens.weight"]  # that of the target is taken
    if method == "eagle":
        found["fc.weight"] = torch.cat((eye, 0 * eye), dim=1)
        return found
    # A row sees its own token, whose query and key are equal and not turned against each other. The
    # state of the row before, to which it is added, is taken away.
    for one, token, state in (("q", 3.0, 0.0), ("k", 3.0, 0.0), ("v", 1.0, -1.0)):
        weight = torch.cat((token * eye, state * eye), dim=1)
        found[f"midlayer.self_attn.{one}_proj.weight"] = weight
    found["midlayer.self_attn.o_proj.weight"] = eye
    known = torch.arange(400) + found["d2t"]
    found["lm_head.weight"] = target["lm_head.weight"][known]
    return found


class PlainHead:
    """A head computed at once over a whole sequence, in float32."""

    def __init__(self, method: str, tensors: dict[str, Tensor]) -> None:
        self.is_wide = method == "eagle3"
        self.tensors = tensors
        self.layer = "midlayer" if self.is_wide else "layers.0"

    def __call__(self, token_ids: Tensor, states: Tensor) -> Tensor:
        """Map tokens [n] and the states before them [n, hidden] to own states [n, hidden]."""
        embedded = self.tensors["embed_tokens.weight"][token_ids]
        if self.is_wide:
            left = self._norm(f"{self.layer}.input_layernorm", embedded)
            right = self._norm(f"{self.layer}.hidden_norm", states)
            read, residual = torch.cat((left, right), dim=1), states
        else:
            merged = torch.cat((embedded, states), dim=1) @ self.tensors["fc.weight"].T
            read = residual = merged + self.tensors["fc.bias"]
        hidden = residual + self._attend(read)
        normed = self._norm(f"{self.layer}.post_attention_layernorm", hidden)
        gate, up = (self._linear(f"{self.layer}.mlp.{one}_proj", normed) for one in ("gate", "up"))
        gated = gate * torch.sigmoid(gate) * up
        return hidden + self._linear(f"{self.layer}.mlp.down_proj", gated)

    def logits(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Map own states to logits; `target` is the target's matrix for them."""
        if not self.is_wide:
            return hidden @ target.T
        return self._linear("lm_head", self._norm("norm", hidden))

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.tensors[f"{name}.weight"].T

    def _norm(self, name: str, x: Tensor) -> Tensor:
        scale = (x.pow(2).mean(dim=1, keepdim=True) + 1e-5).rsqrt()
        return x * scale * self.tensors[f"{name}.weight"]

    def _attend(self, x: Tensor) -> Tensor:
        length = len(x)
        query, key, value = (
            self._linear(f"{self.layer}.self_attn.{one}_proj", x).view(length, 4, 16)
            for one in "qkv"
        )
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, 16, 2) / 16))
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]

        def turn(one: Tensor) -> Tensor:
            first, second = one[..., :8], one[..., 8:]
            return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

        scores = torch.einsum("qhd,khd->hqk", turn(query), turn(key)) / math.sqrt(16)
        hidden = torch.ones(length, length).triu(1).bool()
        weights = scores.masked_fill(hidden, -math.inf).softmax(dim=-1)
        seen = torch.einsum("hqk,khd->qhd", weights, value).reshape(length, 64)
        return self._linear(f"{self.layer}.self_attn.o_proj", seen)
