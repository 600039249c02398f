"""Latent attention (MLA, DeepSeek-AI, 2024) on Triton kernels, in its absorbed form."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.backend.attention import StepAttention
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.families.plan import AttentionSpec, LatentSpec
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.layers.rotary import RotaryTable
from pagewire_worker.models.linear_loader import AttentionLinears
from pagewire_worker.models.load_parts import LatentTensors, load_latent, load_norm_tensors
from pagewire_worker.triton_kernels.add_norm import add_norm
from pagewire_worker.triton_kernels.latent.head_matmul import head_matmul
from pagewire_worker.triton_kernels.latent.latent_write import latent_write


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonLatent:
    """The attention of one layer, up to its last matrix.

    Attributes:
        norm, query_norm: Weights of the norms.
    """

    spec: AttentionSpec
    latent: LatentSpec
    linears: AttentionLinears
    tensors: LatentTensors
    norm: Tensor
    query_norm: Tensor | None
    rotary: RotaryTable

    def __call__(
        self,
        x: Tensor,
        cache: LayerCache,
        batch: StepBatch,
        slots: Tensor,
        attend: StepAttention,
        scales: Tensor | None,
    ) -> Tensor:
        """Return what all heads saw, [tokens, heads * value_dim]; writes latents first.

        Args:
            x: [tokens, hidden].
            slots: The slot mapping of the layer's cache group, [tokens].
            scales: Of a cache of 8-bit floats; see rotary_kv_write.
        """
        spec, latent = self.spec, self.latent
        products = self.linears.qkv(x)
        queries, keys = products.split((products.shape[1] - spec.head_dim, spec.head_dim), dim=1)
        if self.query_norm is not None and latent.query_norm and self.linears.query_up:
            normed = add_norm(None, queries, self.query_norm, latent.query_norm.epsilon)
            queries = self.linears.query_up(normed)
        query = latent_write(
            keys,
            queries,
            batch.positions,
            slots,
            self.rotary.cosines,
            self.rotary.sines,
            cache.key,
            self.norm,
            latent.norm.epsilon,
            batch.faults,
            spec.num_heads,
            scales,
        )
        heads = queries.unflatten(1, (spec.num_heads, -1))
        plain = heads[..., : latent.plain_dim]
        head_matmul(plain, self.tensors.query, query[..., : latent.rank])
        attended = attend(query, cache)
        values = torch.empty(
            (len(x), spec.num_heads, latent.value_dim), dtype=x.dtype, device=x.device
        )
        head_matmul(attended, self.tensors.value, values)
        return values.flatten(1)


def load_triton_latent(
    spec: AttentionSpec,
    weights: WeightReader,
    linears: AttentionLinears,
    rotary: RotaryTable | None,
) -> TritonLatent | None:
    """Load a layer's; None if it has no latent. Raises StartupError naming the tensor at fault."""
    latent = spec.latent
    if latent is None:
        return None
    assert rotary is not None, "the last numbers of queries and keys are rotated"
    low = latent.query_norm
    return TritonLatent(
        spec=spec,
        latent=latent,
        linears=linears,
        tensors=load_latent(spec, weights),
        norm=load_norm_tensors(latent.norm, weights).weight,
        query_norm=None if low is None else load_norm_tensors(low, weights).weight,
        rotary=rotary,
    )
