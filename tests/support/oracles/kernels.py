"""What the kernels of pagewire_worker.triton_kernels compute, in torch, for comparisons."""

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_worker.sampling.filters import apply_filters
from pagewire_worker.sampling.sampler import TokenNoise, gumbel_argmax
from pagewire_worker.triton_kernels.quantize_rows import LARGEST, LEAST_LARGEST
from pagewire_worker.triton_kernels.rotary_kv_write import FP8_MAX, HeadNorms


def add_norm_oracle(
    x: Tensor | None,
    residual: Tensor,
    weight: Tensor,
    epsilon: float,
    rows: Tensor | None = None,
) -> Tensor:
    """Compute the same as `add_norm`, in torch."""
    if x is not None:
        residual += x
    wide = (residual if rows is None else residual.index_select(0, rows)).float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return weight * (wide * scale).to(residual.dtype)


def filter_thresholds_oracle(
    logits: Tensor, temperature: Tensor, min_p: Tensor, top_k: Tensor, top_p: Tensor
) -> Tensor:
    """Return logits / temperature, with -inf below the result of `filter_thresholds`."""
    scaled = logits / temperature.unsqueeze(1)
    return apply_filters(scaled, min_p.cpu().numpy(), top_k.cpu().numpy(), top_p.cpu().numpy())


def gumbel_noise_oracle(
    seed_low: Tensor, seed_high: Tensor, position: Tensor, choice: Tensor, vocab_size: int
) -> Tensor:
    """Compute the same as `gumbel_noise`, in torch."""
    return TokenNoise(seed_low, seed_high, position, choice).dense(vocab_size)


def quantize_rows_oracle(
    x: Tensor, dtype: torch.dtype = torch.float8_e4m3fn
) -> tuple[Tensor, Tensor]:
    """Compute the same as `quantize_rows`, in torch, for rows of finite numbers."""
    wide, largest = x.float(), LARGEST[dtype]
    scales = wide.abs().amax(dim=1, keepdim=True).clamp(min=LEAST_LARGEST) / largest
    scaled = (wide / scales).clamp(-largest, largest)
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), scales


def rotary_kv_write_oracle(
    qkv: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    cosines: Tensor,
    sines: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    norms: HeadNorms | None = None,
    scales: Tensor | None = None,
    faults: Tensor | None = None,
    query_scales: Tensor | None = None,
) -> Tensor:
    """Compute the same as `rotary_kv_write`, in torch."""
    num_kv_heads, head_dim = key_cache.shape[2:]
    heads = qkv.unflatten(1, (-1, head_dim))
    query, key, value = heads.split((heads.shape[1] - 2 * num_kv_heads, *2 * (num_kv_heads,)), 1)
    if norms is not None:
        query = _normed(query, norms.query, norms.epsilon)
        key = _normed(key, norms.key, norms.epsilon)
    cosine, sine = (table[positions].float().unsqueeze(1) for table in (cosines, sines))
    key, value = _rotated(key, cosine, sine), value.float()
    if faults is not None:
        dtype = qkv.dtype if scales is None else torch.float32
        is_finite = [x.to(dtype).isfinite() for x in (key, value)]
        is_broken = ~(is_finite[0].all(2).all(1) & is_finite[1].all(2).all(1))
        faults.logical_or_(is_broken & (slot_mapping >= 0))
        key, value = key.where(is_finite[0], 0.0), value.where(is_finite[1], 0.0)
    if scales is not None:
        key, value = (
            (x / scale).clamp(-FP8_MAX, FP8_MAX)
            for x, scale in zip((key, value), scales, strict=True)
        )
    is_kept = slot_mapping >= 0
    places = slot_mapping[is_kept]
    index = (places // key_cache.shape[1], places % key_cache.shape[1])
    key_cache[index] = key[is_kept].to(key_cache.dtype)
    value_cache[index] = value[is_kept].to(value_cache.dtype)
    query = _rotated(query, cosine, sine)
    if query_scales is not None:
        query = query * query_scales[positions].view(-1, 1, 1)
    return query.to(qkv.dtype)


def _normed(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return weight * (wide * scale).to(x.dtype)


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.float().chunk(2, dim=-1)
    return x.float() * cosine + torch.cat((-second, first), dim=-1) * sine


def sample_tokens_oracle(
    logits: Tensor,
    temperature: Tensor,
    seed_low: Tensor,
    seed_high: Tensor,
    position: Tensor,
    choice: Tensor,
    threshold: Tensor | None = None,
) -> Tensor:
    """Compute the same as `sample_tokens`, in torch."""
    is_random = temperature > 0
    scaled = logits / temperature.masked_fill(~is_random, 1.0).unsqueeze(1)
    if threshold is not None:
        scaled = scaled.masked_fill(scaled < threshold.unsqueeze(1), float("-inf"))
    noise = TokenNoise(seed_low, seed_high, position, choice)
    return torch.where(is_random, gumbel_argmax(scaled, noise), logits.argmax(dim=1))


def activate_oracle(gate_up: Tensor) -> Tensor:
    """Compute the same as `activate`, in torch."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (functional.silu(gate) * up).to(gate_up.dtype)


def tile_matmul_oracle(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute the same as `tile_matmul`, except the order of sums, in torch."""
    product = x.double() @ weight.double().T
    if bias is not None:
        product += bias.double()
    return product.to(x.dtype)
