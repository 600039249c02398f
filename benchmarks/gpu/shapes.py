"""Shapes of published models, and folders that hold a shape: config.json and a tokenizer."""

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder of the architecture of Qwen3; `context` is the most positions."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    tied: bool

    @property
    def num_layer_weights(self) -> int:
        """Elements of the matrices of all layers."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def num_step_weights(self) -> int:
        """Elements that a decode step reads: the layers and the output matrix."""
        return self.num_layer_weights + self.vocab * self.hidden

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of keys and values of one position in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim


SHAPES = {
    "qwen3-0.6b": Shape(
        name="qwen3-0.6b",
        hidden=1024,
        intermediate=3072,
        layers=28,
        heads=16,
        kv_heads=8,
        head_dim=128,
        vocab=151936,
        context=40960,
        tied=True,
    ),
    "qwen3-8b": Shape(
        name="qwen3-8b",
        hidden=4096,
        intermediate=12288,
        layers=36,
        heads=32,
        kv_heads=8,
        head_dim=128,
        vocab=151936,
        context=40960,
        tied=False,
    ),
}

TOY = Shape(
    name="toy",
    hidden=32,
    intermediate=64,
    layers=1,
    heads=4,
    kv_heads=2,
    head_dim=16,
    vocab=320,
    context=512,
    tied=True,
)


def write_checkpoint(shape: Shape, parent: Path) -> Path:
    """Return a folder in `parent` that `--load-format dummy` loads."""
    folder = parent / shape.name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(_config(shape), indent=2))
    ends = {"bos_token_id": shape.vocab - 2, "eos_token_id": shape.vocab - 1}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    _tokenizer(shape.vocab).save(str(folder / "tokenizer.json"))
    return folder


def _config(shape: Shape) -> dict[str, object]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context,
        "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": shape.tied,
        "use_sliding_window": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": shape.vocab - 2,
        "eos_token_id": shape.vocab - 1,
    }


def _tokenizer(vocab_size: int) -> Tokenizer:
    """Return bytes, and fillers up to the size of the vocabulary: every id has a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    entries = alphabet + [f"<{number}>" for number in range(vocab_size - len(alphabet))]
    tokenizer = Tokenizer(BPE({entry: number for number, entry in enumerate(entries)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
