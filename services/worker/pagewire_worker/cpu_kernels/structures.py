"""Makes the structures of kernels/abi.h out of the packed parts of a layer."""

import ctypes
from collections.abc import Sequence

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import pointer
from pagewire_worker.cpu_kernels.packed_layers import FusedExperts, FusedLayer, FusedNorm
from pagewire_worker.cpu_kernels.packing import PackedWeights
from pagewire_worker.kv.kv_cache import LayerCache


def adapters_from(whole: abi.AdapterArgs, first_panel: int) -> "ctypes.Array[abi.AdapterArgs]":
    """Return the adapters of a matrix's panels from one on; valid while the adapters live."""
    size = ctypes.sizeof(abi.AdapterPanel)
    first = ctypes.addressof(whole.panels.contents) + first_panel * size
    panels = ctypes.cast(first, ctypes.POINTER(abi.AdapterPanel))
    sizes = whole.num_parts, whole.max_rank, whole.num_inputs
    return (abi.AdapterArgs * 1)(abi.AdapterArgs(whole.parts, panels, *sizes))


def linear_array(linears: Sequence[PackedWeights]) -> "ctypes.Array[abi.LinearArgs]":
    """Return the structures of matrices, one behind the other; valid while the matrices live."""
    return (abi.LinearArgs * len(linears))(*(one.structure() for one in linears))


def router_structure(experts: FusedExperts) -> abi.RouterArgs:
    """Return the structure of a layer's router; valid while `experts` lives."""
    spec = experts.spec.router
    return abi.RouterArgs(
        choice_bias=pointer(experts.choice_bias),
        num_experts=spec.num_experts,
        first_expert=experts.spec.first,
        num_own=len(experts.experts),
        num_chosen=spec.num_chosen,
        num_groups=spec.num_groups,
        num_chosen_groups=spec.num_chosen_groups,
        group_best=spec.group_best,
        is_sigmoid=spec.score == "sigmoid",
        is_normalised=spec.is_normalised,
        has_shared=experts.shared is not None,
        has_gate=experts.spec.has_shared_gate,
        factor=spec.factor,
    )


def norm_pointer(norm: FusedNorm | None) -> "ctypes._Pointer[abi.NormArgs] | None":
    """Return a pointer to the structure of a norm; None for None."""
    return None if norm is None else ctypes.pointer(norm.structure())


def attention_structure(layer: FusedLayer, cache: LayerCache) -> abi.AttentionArgs:
    """Return the structure of a layer's attention; valid while both arguments live."""
    spec = layer.spec.attention
    cosines, sines, query_scales = layer.rotary or (None, None, None)
    scale = spec.head_dim**-0.5 if spec.kind.scale is None else spec.kind.scale
    return abi.AttentionArgs(
        query_norm=norm_pointer(layer.query_norm),
        key_norm=norm_pointer(layer.key_norm),
        cosines=pointer(cosines),
        sines=pointer(sines),
        query_scales=pointer(query_scales),
        key=pointer(cache.key),
        value=None if cache.is_latent else pointer(cache.value),
        sinks=pointer(layer.sinks),
        window=spec.kind.window or 0,
        group=cache.group,
        score_scale=scale,
        softcap=spec.kind.softcap or 0.0,
    )
