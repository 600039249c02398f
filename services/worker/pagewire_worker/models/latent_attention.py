"""Latent attention (MLA, DeepSeek-AI, 2024) in torch, in its absorbed form.

Chunks and decodes are computed in the same way: keys and values of heads are never made.
"""

import torch
from torch import Tensor

from pagewire_worker.families.plan import AttentionSpec
from pagewire_worker.layers.norm import Norm
from pagewire_worker.models.layer_inputs import LayerInputs
from pagewire_worker.models.linear_loader import AttentionLinears
from pagewire_worker.models.load_parts import LatentTensors


class LatentAttention:
    """Attention over a paged cache of latents."""

    __slots__ = ("_latent", "_linears", "_norm", "_query_norm", "_spec", "_tensors")

    def __init__(
        self,
        *,
        spec: AttentionSpec,
        linears: AttentionLinears,
        tensors: LatentTensors,
        norm: Norm,
        query_norm: Norm | None,
    ) -> None:
        assert spec.latent is not None
        self._spec = spec
        self._latent = spec.latent
        self._linears = linears
        self._tensors = tensors
        self._norm = norm
        self._query_norm = query_norm

    def __call__(self, x: Tensor, inputs: LayerInputs) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]; writes latents before it reads them."""
        spec, latent, tensors, rotation = self._spec, self._latent, self._tensors, inputs.rotation
        assert rotation is not None, "the last numbers of queries and keys are rotated"
        products = self._linears.qkv(x)
        query, key = products.split((products.shape[1] - spec.head_dim, spec.head_dim), dim=1)
        if self._query_norm is not None and self._linears.query_up is not None:
            query = self._linears.query_up(self._query_norm(query))
        heads = query.reshape(len(x), spec.num_heads, -1)
        plain, turned = heads[..., : latent.plain_dim], heads[..., latent.plain_dim :]
        turned = rotation.rotate_queries(turned)
        kept = self._norm(key[:, : latent.rank])
        key_turned = rotation.rotate(key[:, None, latent.rank :])
        key = torch.cat((kept.unsqueeze(1), key_turned), dim=-1)
        inputs.cache.write(inputs.slot_mapping, key, None, inputs.faults)
        absorbed = torch.einsum("thp,hrp->thr", plain, tensors.query)
        attended = inputs.attend(torch.cat((absorbed, turned), dim=-1), inputs.cache)
        values = torch.einsum("thr,hvr->thv", attended, tensors.value)
        return self._linears.output(values.reshape(len(x), -1))
