"""Self-attention of one layer: merged projections, rotary embedding, paged cache, output."""

from torch import Tensor

from pagewire_worker.backend.attention import StepAttention
from pagewire_worker.checkpoint.model_config import ModelConfig
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.layers.linear import Linear
from pagewire_worker.layers.norm import RmsNorm
from pagewire_worker.layers.rotary import Rotation


class SelfAttention:
    """Grouped-query attention (Ainslie et al., 2023) over a paged cache."""

    __slots__ = ("_config", "_key_norm", "_output", "_qkv", "_query_norm")

    def __init__(
        self,
        *,
        config: ModelConfig,
        qkv: Linear,
        output: Linear,
        query_norm: RmsNorm | None,
        key_norm: RmsNorm | None,
    ) -> None:
        self._config = config
        self._qkv = qkv
        self._output = output
        self._query_norm = query_norm
        self._key_norm = key_norm

    def __call__(
        self,
        x: Tensor,
        rotation: Rotation,
        slot_mapping: Tensor,
        cache: LayerCache,
        attend: StepAttention,
        faults: Tensor | None = None,
    ) -> Tensor:
        """Map [tokens, hidden] to [tokens, hidden]; writes keys and values before it reads them."""
        config = self._config
        num_tokens = x.shape[0]
        heads = self._qkv(x).view(num_tokens, -1, config.head_dim)
        sizes = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        query, key, value = heads.split(sizes, dim=1)
        if self._query_norm is not None and self._key_norm is not None:
            query, key = self._query_norm(query), self._key_norm(key)
        cache.write(slot_mapping, rotation.rotate(key), value, faults)
        attended = attend(rotation.rotate(query), cache)
        return self._output(attended.reshape(num_tokens, -1))
