"""Memory for the activations of a step, and an estimate of its time."""

from dataclasses import dataclass

import torch

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import pointer
from pagewire_worker.cpu_kernels.packed_layers import FusedDecoder, FusedExperts, FusedLayer

_MEMORY_BYTES_PER_SECOND = 20e9
_FLOP_PER_SECOND = 200e9


class StepScratch:
    """Memory for the activations of `num_tokens` tokens.

    Args:
        low_size: Numbers of a token between both products of adapters.
    """

    def __init__(self, decoder: FusedDecoder, num_tokens: int, low_size: int = 0) -> None:
        plan, dtype = decoder.plan, decoder.dtype
        attention, latent = plan.attention, plan.attention.latent
        hidden, sizes = plan.hidden_size, attention.sizes
        heads = attention.num_heads
        normed, query, attended = hidden, sizes[0], sizes[0]
        stored = [sum(sizes)]
        if latent is not None:
            stored = [one.num_outputs for one in (attention.qkv, latent.query_up) if one]
            normed = max(hidden, latent.query_norm.size if latent.query_norm else 0)
            query = heads * max(attention.head_dim, latent.value_dim)
            attended = heads * max(latent.rank, latent.plain_dim)
        linears = [linear for layer in decoder.layers for linear in layer.linears]
        experts = [linear for layer in decoder.layers for linear in layer.expert_linears]
        slices = max(layer.num_slices for layer in decoder.layers)
        # Rows of all slices of a matrix are prepared together.
        most = max(slices, _expert_slices(decoder))
        row_bytes = most * max(one.storage.prepared_row_bytes for one in (*linears, *experts))
        products = max(slices * hidden, *stored, _router_outputs(decoder))
        inner = max(plan.inner_sizes)
        row_sizes = {
            abi.RESIDUAL: (hidden, torch.float32),
            abi.PRODUCTS: (products, torch.float32),
            abi.NORMED: (normed, dtype),
            abi.QUERY: (query, dtype),
            abi.ATTENDED: (attended, dtype),
            abi.ACTIVATED: (inner, dtype),
            abi.PREPARED: (row_bytes, torch.uint8),
            abi.LOW: (low_size, torch.float32),
            abi.SLICED: (query if slices > 1 else 0, dtype),
        }
        if plan.num_chosen:
            row_sizes |= _expert_sizes(decoder, inner, row_bytes, low_size)
        self.num_tokens = num_tokens
        self._tensors = {
            buffer: torch.empty(num_tokens * size, dtype=kind)
            for buffer, (size, kind) in row_sizes.items()
        }
        if plan.num_chosen:
            self._tensors[abi.STARTS] = torch.empty(2 * (abi.MOST_EXPERTS + 1), dtype=torch.int64)
        found = (self._tensors.get(buffer) for buffer in range(abi.NUM_BUFFERS))
        self.structure = abi.Scratch(tuple(map(pointer, found)))

    def residual(self, num_tokens: int, size: int) -> torch.Tensor:
        """Return the residual stream of the last step, float32 [num_tokens, size], as a view."""
        return self._tensors[abi.RESIDUAL][: num_tokens * size].view(num_tokens, size)


def _expert_slices(decoder: FusedDecoder) -> int:
    """Return the slices of experts that are here, which of whole ones are all."""
    return max(layer.num_expert_slices for layer in decoder.layers)


def _expert_sizes(
    decoder: FusedDecoder, inner: int, row_bytes: int, low_size: int
) -> dict[int, tuple[int, torch.dtype]]:
    """Return the numbers of a token, and their types, in the buffers of experts."""
    chosen, dtype = decoder.plan.num_chosen, decoder.dtype
    outputs = chosen * decoder.plan.hidden_size
    is_spread = any(layer.is_spread for layer in decoder.layers)
    exchanged = max(layer.num_slices for layer in decoder.layers) if is_spread else 0
    return {
        abi.WEIGHTS: (chosen + 1, torch.float32),
        abi.CHOSEN: (2 * chosen, torch.int32),
        abi.EXPERT_INPUT: (outputs, dtype),
        abi.EXPERT_PREPARED: (chosen * row_bytes, torch.uint8),
        abi.EXPERT_ACTIVATED: (chosen * inner, dtype),
        abi.EXPERT_OUTPUT: (_expert_slices(decoder) * outputs, torch.float32),
        abi.EXPERT_EXCHANGED: (exchanged * outputs, torch.float32),
        abi.EXPERT_LOW: (chosen * low_size, torch.float32),
        abi.EXPERT_SLOTS: (chosen if low_size else 0, torch.int64),
    }


def _router_outputs(decoder: FusedDecoder) -> int:
    mlps = (layer.mlp for layer in decoder.layers)
    routers = (one.router for one in mlps if isinstance(one, FusedExperts))
    return max((one.storage.num_outputs for one in routers), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWork:
    """What a step reads and computes for one layer.

    Attributes:
        num_bytes, num_weights: Of the matrices that all tokens read.
        expert_bytes, expert_weights: Of one expert.
    """

    num_bytes: int
    num_weights: int
    expert_bytes: int
    expert_weights: int
    num_experts: int
    num_chosen: int

    @classmethod
    def of(cls, layer: FusedLayer) -> "LayerWork":
        """Return the work of one layer."""
        own = [linear.storage for linear in layer.linears]
        expert = [linear.storage for linear in layer.expert_linears]
        experts = layer.spec.experts
        return cls(
            num_bytes=sum(one.num_bytes for one in own),
            num_weights=sum(one.num_outputs * one.num_inputs for one in own),
            expert_bytes=sum(one.num_bytes for one in expert),
            expert_weights=sum(one.num_outputs * one.num_inputs for one in expert),
            num_experts=0 if experts is None else len(experts.experts),
            num_chosen=0 if experts is None else experts.router.num_chosen,
        )

    def seconds(self, num_tokens: int) -> float:
        """Return roughly the time of the layer for `num_tokens` tokens."""
        num_read = min(self.num_experts, num_tokens * self.num_chosen)
        weights = self.num_weights + self.num_chosen * self.expert_weights
        return max(
            (self.num_bytes + num_read * self.expert_bytes) / _MEMORY_BYTES_PER_SECOND,
            2 * num_tokens * weights / _FLOP_PER_SECOND,
        )
