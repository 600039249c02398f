"""Initial weights with hand-written copy circuits; every weight stays trainable and nothing here
runs after step 0.

Layer 0, heads 0 and 1 look one and two tokens back and write what they see into private subspaces.
Layer 1 compares those subspaces with the current token and copies the attended token to the output:
the induction circuit that a plain start needs most of a short run to find (arXiv:2209.11895).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from builtin_recipe.model.network import Attention, Block, Decoder, Shape

_EMBEDDING_STD = 0.1
# The private subspaces are 64 wide and the match reads the first 32 directions of each.
_FAST_PAIRS = 6
# Pairs from here on turn so slowly at theta 1e6 that a match survives the whole context.
_FIRST_SLOW_PAIR = 16
_PHASE_GAIN = 0.3
_FAST_NORM_GAIN = 1.7
_SLOW_NORM_GAIN = 1.5
_SHARED_PART, _OWN_PART = 0.85, 0.53


@dataclass(frozen=True, slots=True)
class _Bases:
    """Orthonormal directions [hidden, hidden] without channel 0, which is the constant."""

    written: Tensor
    read: Tensor


def _directions(hidden: int) -> Tensor:
    square = torch.linalg.qr(torch.randn(hidden - 1, hidden - 1))[0]
    padded = torch.zeros(hidden - 1, hidden)
    padded[:, 1:] = square
    return padded


def _block(network: Decoder, index: int) -> Block:
    block = network.layers[index]
    assert isinstance(block, Block)
    return block


def _tie_token_forms(weight: Tensor, vocabulary: dict[str, int]) -> None:
    """Start ` river`, `river` and `River` close together, so that matching works across forms."""
    forms: dict[str, list[int]] = {}
    for token, token_id in sorted(vocabulary.items(), key=lambda entry: entry[1]):
        plain = token.replace("\u0120", "").lower()
        if plain and not token.startswith("<|"):
            forms.setdefault(plain, []).append(token_id)
    for ids in forms.values():
        if len(ids) > 1:
            shared = torch.randn(weight.shape[1]) * _EMBEDDING_STD
            weight[ids] = _SHARED_PART * shared + _OWN_PART * weight[ids]


def _seed_look_back(attention: Attention, shape: Shape, bases: _Bases) -> None:
    """Set heads 0 and 1 to the previous token and the one before it, through the rotary phase."""
    head, half = shape.head_dim, shape.head_dim // 2
    angles = shape.rope_theta ** (-torch.arange(_FAST_PAIRS).float() / half)
    query, key = attention.q_proj.weight, attention.k_proj.weight
    key[:head] *= 0.1
    key[:head, 0] = 0.0
    key[:_FAST_PAIRS, 0] = _PHASE_GAIN
    attention.v_proj.weight[:head] = bases.read[:head]
    for index in range(2):
        start = index * head
        query[start : start + head] *= 0.1
        query[start : start + head, 0] = 0.0
        phase = (index + 1) * angles
        query[start : start + _FAST_PAIRS, 0] = _PHASE_GAIN * phase.cos()
        query[start + half : start + half + _FAST_PAIRS, 0] = -_PHASE_GAIN * phase.sin()
        # At the scale of the embedding: anything smaller drowns in the residual stream.
        private = bases.written[start : start + head]
        attention.o_proj.weight[:, start : start + head] = private.t() * _EMBEDDING_STD
    for norm in (attention.q_norm.weight, attention.k_norm.weight):
        norm[:_FAST_PAIRS] = _FAST_NORM_GAIN
        norm[half : half + _FAST_PAIRS] = _FAST_NORM_GAIN


def _seed_match(attention: Attention, shape: Shape, bases: _Bases) -> None:
    """Match the looked-back tokens with the current one and copy the attended token."""
    head, half = shape.head_dim, shape.head_dim // 2
    group = shape.num_heads // shape.num_kv_heads
    slow = [*range(_FIRST_SLOW_PAIR, half), *range(half + _FIRST_SLOW_PAIR, head)]
    query, key = attention.q_proj.weight, attention.k_proj.weight
    query *= 0.3
    key *= 0.3
    for index in range(min(2, shape.num_kv_heads)):
        kv_start, q_start = index * head, index * group * head
        key[kv_start : kv_start + head] *= 0.3
        query[q_start : q_start + head] *= 0.3
        for number, dim in enumerate(slow):
            key[kv_start + dim] = bases.written[index * head + number]
            query[q_start + dim] = bases.read[number]
        copied = _directions(shape.hidden_size)[:head]
        attention.v_proj.weight[kv_start : kv_start + head] = copied
        scale = 1.5 * _EMBEDDING_STD
        attention.o_proj.weight[:, q_start : q_start + head] = copied.t() * scale
    for norm in (attention.q_norm.weight, attention.k_norm.weight):
        norm[slow] = _SLOW_NORM_GAIN


@torch.no_grad()
def seed_circuits(network: Decoder, vocabulary: dict[str, int]) -> None:
    """Write the initial weights of a fresh network; `vocabulary` maps token strings to ids."""
    shape = network.shape
    weight = network.embed_tokens.weight
    weight.normal_(0.0, _EMBEDDING_STD)
    network.norm.weight.fill_(0.25)
    for index in range(shape.num_layers):
        block = _block(network, index)
        block.self_attn.o_proj.weight.zero_()
        block.mlp.down_proj.weight.zero_()
    _tie_token_forms(weight, vocabulary)
    # Channel 0 is the same for every token: what the look-back heads read to know only positions.
    weight[:, 0] = _EMBEDDING_STD * math.sqrt(shape.hidden_size) * 0.5
    bases = _Bases(_directions(shape.hidden_size), _directions(shape.hidden_size))
    _seed_look_back(_block(network, 0).self_attn, shape, bases)
    _seed_match(_block(network, 1).self_attn, shape, bases)
