"""Write a checkpoint with random weights in a well-known shape, so that speed can be measured
without a model hub.

    python benchmarks/make_checkpoint.py --shape qwen2.5-0.5b --out checkpoints/qwen2.5-0.5b

The folder is laid out like one from the hub: config.json, model.safetensors (bf16), tokenizer.json
(bytes first, then filler entries up to the vocabulary size), generation_config.json.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from parts import gpt_oss
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

STD = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder shape: Qwen2's architecture (bias on q, k, v), Qwen3's with experts, or gpt-oss.

    Attributes:
        intermediate: Values behind the activation of an MLP, or of one expert.
        experts: Experts of each layer; 0 for none.
        chosen: Experts of a token.
        width: Values of a head; 0 for hidden / heads.
        is_gpt_oss: The architecture is that of gpt-oss.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    context: int
    tied: bool
    experts: int = 0
    chosen: int = 0
    width: int = 0
    is_gpt_oss: bool = False

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.width or self.hidden // self.heads


SHAPES = {
    "qwen2.5-0.5b": Shape(
        hidden=896,
        layers=24,
        heads=14,
        kv_heads=2,
        intermediate=4864,
        vocab=151936,
        context=32768,
        tied=True,
    ),
    "qwen2.5-1.5b": Shape(
        hidden=1536,
        layers=28,
        heads=12,
        kv_heads=2,
        intermediate=8960,
        vocab=151936,
        context=32768,
        tied=True,
    ),
    "tiny": Shape(
        hidden=256,
        layers=4,
        heads=4,
        kv_heads=2,
        intermediate=640,
        vocab=2048,
        context=2048,
        tied=True,
    ),
    # 1.6 GB, of which a token reads 0.3 GB.
    "qwen3-moe-1.5gb": Shape(
        hidden=1024,
        layers=10,
        heads=16,
        kv_heads=4,
        intermediate=384,
        vocab=32000,
        context=32768,
        tied=True,
        experts=64,
        chosen=8,
        width=64,
    ),
    # 1.4 GB, of which a token reads 0.4 GB.
    "gpt-oss-1.4gb": Shape(
        hidden=1024,
        layers=24,
        heads=16,
        kv_heads=4,
        intermediate=1024,
        vocab=32000,
        context=32768,
        tied=False,
        experts=32,
        chosen=4,
        width=64,
        is_gpt_oss=True,
    ),
    # As little to compute per token as there can be, and a long context.
    "tiny-long": Shape(
        hidden=32,
        layers=1,
        heads=2,
        kv_heads=1,
        intermediate=64,
        vocab=2048,
        context=131072,
        tied=True,
    ),
}


def make_tensors(shape: Shape, seed: int) -> dict[str, torch.Tensor]:
    """Return the weights by their name in the hub's layout."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return (torch.randn(*size, generator=generator) * STD).to(torch.bfloat16)

    tensors = {
        "model.embed_tokens.weight": normal(shape.vocab, shape.hidden),
        "model.norm.weight": torch.ones(shape.hidden, dtype=torch.bfloat16),
    }
    if not shape.tied:
        tensors["lm_head.weight"] = normal(shape.vocab, shape.hidden)
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{name}.weight"] = torch.ones(shape.hidden, dtype=torch.bfloat16)
        if shape.is_gpt_oss:
            tensors |= gpt_oss.layer_tensors(shape, prefix, generator)
            continue
        tensors |= _attention(shape, f"{prefix}self_attn.", normal)
        if shape.experts:
            tensors[f"{prefix}mlp.gate.weight"] = normal(shape.experts, shape.hidden)
        mlps = [f"mlp.experts.{one}." for one in range(shape.experts)] or ["mlp."]
        for mlp in mlps:
            for name in ("gate", "up"):
                tensors[f"{prefix}{mlp}{name}_proj.weight"] = normal(
                    shape.intermediate, shape.hidden
                )
            tensors[f"{prefix}{mlp}down_proj.weight"] = normal(shape.hidden, shape.intermediate)
    return tensors


def _attention(
    shape: Shape, prefix: str, normal: Callable[..., torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the weights of attention; `normal` draws a tensor of the given sizes."""
    tensors = {}
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for name, out in (("q", width), ("k", kv_width), ("v", kv_width)):
        tensors[f"{prefix}{name}_proj.weight"] = normal(out, shape.hidden)
        if not shape.experts:
            tensors[f"{prefix}{name}_proj.bias"] = normal(out)
    if shape.experts:
        for name in ("q", "k"):
            ones = torch.ones(shape.head_dim, dtype=torch.bfloat16)
            tensors[f"{prefix}{name}_norm.weight"] = ones
    tensors[f"{prefix}o_proj.weight"] = normal(shape.hidden, width)
    return tensors


def make_config(shape: Shape) -> dict[str, object]:
    """Return config.json."""
    kind: dict[str, object] = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    if shape.is_gpt_oss:
        kind = gpt_oss.config_fields(shape)
    elif shape.experts:
        kind = {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "head_dim": shape.head_dim,
            "num_experts": shape.experts,
            "num_experts_per_tok": shape.chosen,
            "moe_intermediate_size": shape.intermediate,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    return {
        **kind,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context,
        "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "bos_token_id": shape.vocab - 2,
        "eos_token_id": shape.vocab - 1,
    }


def make_tokenizer(vocab_size: int) -> Tokenizer:
    """Return a byte-level tokenizer without merges whose vocabulary is filled up to
    `vocab_size`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    entries = alphabet + [f"<{i}>" for i in range(vocab_size - len(alphabet))]
    tokenizer = Tokenizer(BPE({entry: i for i, entry in enumerate(entries)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def main() -> None:
    """Write the folder named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-0.5b")
    parser.add_argument("--out", type=Path, help="default: checkpoints/<shape>")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    folder: Path = arguments.out or Path("checkpoints") / arguments.shape
    folder.mkdir(parents=True, exist_ok=True)
    save_file(make_tensors(shape, arguments.seed), folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(make_config(shape), indent=2))
    ends = {"eos_token_id": shape.vocab - 1, "bos_token_id": shape.vocab - 2}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    make_tokenizer(shape.vocab).save(str(folder / "tokenizer.json"))
    print(folder)


if __name__ == "__main__":
    main()
