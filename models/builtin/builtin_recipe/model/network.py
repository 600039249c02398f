"""A small Qwen3 decoder for training, with module names equal to those of the published
checkpoints; no cache, no sampling.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IGNORED_LABEL = -100
_NORM_EPS = 1e-6
_CHUNK: Final = 128
_LONGEST_IN_CHUNKS: Final = 512


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the network; `head_dim` is even (rotary pairs) and heads are grouped evenly."""

    vocab_size: int = 2304
    hidden_size: int = 256
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    mlp_size: int = 640
    max_positions: int = 2048
    rope_theta: float = 1e6

    def as_dict(self) -> dict[str, int | float]:
        """Return the sizes for a checkpoint file."""
        return asdict(self)


# `chat` answers; `draft` guesses its next tokens and shares its vocabulary.
SHAPES: Final[Mapping[str, Shape]] = {
    "chat": Shape(),
    "draft": Shape(hidden_size=192, num_layers=2, num_heads=3, num_kv_heads=1, mlp_size=384),
}


class RmsNorm(nn.Module):
    """Root-mean-square norm over the last dimension."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize [..., size]."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), _NORM_EPS)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _attend_in_chunks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Written out, a chunk of queries at a time over the keys up to its end.

    For short rows on a CPU, forward and backward take a third of the library kernel's time.
    """
    batch, heads, length, head_dim = query.shape
    kv_heads = key.shape[1]
    pairs, group = batch * kv_heads, heads // kv_heads
    grouped = query.reshape(pairs, group, length, head_dim)
    key, value = key.reshape(pairs, length, head_dim), value.reshape(pairs, length, head_dim)
    outputs = []
    for start in range(0, length, _CHUNK):
        end = min(start + _CHUNK, length)
        rows = grouped[:, :, start:end].reshape(pairs, -1, head_dim)
        scores = torch.bmm(rows, key[:, :end].transpose(1, 2)).view(pairs, group, -1, end)
        positions = torch.arange(end, device=query.device)
        is_future = positions[start:, None] < positions
        scaled = (scores.float() / math.sqrt(head_dim)).masked_fill(is_future, -math.inf)
        shares = scaled.softmax(-1).to(value.dtype).view(pairs, -1, end)
        outputs.append(torch.bmm(shares, value[:, :end]).view(pairs, group, -1, head_dim))
    return torch.cat(outputs, 2).view(batch, heads, length, head_dim)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return causal attention of query [batch, heads, length, head_dim] on fewer key heads."""
    batch, heads, length, head_dim = query.shape
    is_training = query.requires_grad and query.device.type == "cpu"
    if is_training and length <= _LONGEST_IN_CHUNKS:
        return _attend_in_chunks(query, key, value)
    # Written out: the compiled CPU kernel for grouped heads is slower than this expansion.
    wide = (batch, key.shape[1], heads // key.shape[1], length, head_dim)
    key = key[:, :, None].expand(wide).reshape(query.shape)
    value = value[:, :, None].expand(wide).reshape(query.shape)
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class Attention(nn.Module):
    """Causal grouped-query attention with normalized queries and keys (Qwen3, arXiv:2505.09388)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        hidden, head_dim = shape.hidden_size, shape.head_dim
        self.q_proj = nn.Linear(hidden, shape.num_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, shape.num_kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, shape.num_kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * head_dim, hidden, bias=False)
        self.q_norm = RmsNorm(head_dim)
        self.k_norm = RmsNorm(head_dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attend within x [batch, length, hidden]; cos and sin are [length, 1, head_dim / 2]."""
        batch, length, _ = x.shape
        heads, kv_heads, head_dim = (
            self.shape.num_heads,
            self.shape.num_kv_heads,
            self.shape.head_dim,
        )
        query = self.q_norm(self.q_proj(x).view(batch, length, heads, head_dim))
        key = self.k_norm(self.k_proj(x).view(batch, length, kv_heads, head_dim))
        value = self.v_proj(x).view(batch, length, kv_heads, head_dim)
        query = _rotate(query, cos, sin).transpose(1, 2)  # [batch, heads, length, head_dim]
        key = _rotate(key, cos, sin).transpose(1, 2)
        mixed = attend(query, key, value.transpose(1, 2))
        output: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
        return output


class Mlp(nn.Module):
    """The gated SiLU feed-forward part of a block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.mlp_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.mlp_size, bias=False)
        self.down_proj = nn.Linear(shape.mlp_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., hidden] to [..., hidden]."""
        output: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return output


class Block(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(shape.hidden_size)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RmsNorm(shape.hidden_size)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map [batch, length, hidden] to the same shape."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        output: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return output


class Decoder(nn.Module):
    """The whole network; the output matrix is the embedding."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.num_layers))
        self.norm = RmsNorm(shape.hidden_size)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.7 / math.sqrt(parameter.shape[1]))
        pairs = torch.arange(shape.head_dim // 2).float() / (shape.head_dim // 2)
        angles = torch.arange(shape.max_positions).float()[:, None] * shape.rope_theta**-pairs
        self.register_buffer("cos", angles.cos()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin()[:, None], persistent=False)

    def hidden(self, ids: Tensor) -> Tensor:
        """Return the final normalized states [batch, length, hidden] of ids [batch, length]."""
        length = ids.shape[1]
        x = self.embed_tokens(ids)
        cos, sin = self.cos[:length], self.sin[:length]
        for block in self.layers:
            x = block(x, cos, sin)
        output: Tensor = self.norm(x)
        return output

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits [batch, length, vocab] of ids [batch, length]."""
        return F.linear(self.hidden(ids), self.embed_tokens.weight)

    def loss_and_accuracy(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean cross entropy over labelled positions and the share guessed right.

        `labels` [batch, length] is already shifted; `IGNORED_LABEL` marks the rest. Only labelled
        positions go through the output matrix, which is a third of the cost.
        """
        flat = labels.view(-1)
        chosen = flat.ne(IGNORED_LABEL).nonzero().squeeze(1)
        states = self.hidden(ids).reshape(-1, self.shape.hidden_size).index_select(0, chosen)
        logits = F.linear(states, self.embed_tokens.weight).float()
        targets = flat.index_select(0, chosen)
        accuracy = logits.detach().argmax(-1).eq(targets).float().mean()
        return F.cross_entropy(logits, targets), accuracy


def num_parameters(network: nn.Module) -> int:
    """Return the number of trainable values."""
    return sum(parameter.numel() for parameter in network.parameters())
