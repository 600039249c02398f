"""Makes the operations of kernels/operations.h out of the layers of a decoder."""

import ctypes

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.decoder import FusedLayer, FusedNorm, FusedNormPair
from pagewire_worker.cpu_kernels.library import pointer
from pagewire_worker.cpu_kernels.packing import PackedWeights
from pagewire_worker.kv.kv_cache import LayerCache


class LayerOperations:
    """The operations of one layer, and the structures that they point to.

    Args:
        multiplier: Of attention and MLP before they are added to the residual.
    """

    def __init__(self, layer: FusedLayer, cache: LayerCache, multiplier: float) -> None:
        self._multiplier = multiplier
        self._made: list[abi.Operation] = []
        self.attention = attention_structure(layer, cache)
        mlp = layer.spec.mlp
        self._enter(layer.attention_norms, layer.qkv)
        self._add(abi.STORE, abi.NORMED, abi.PRODUCTS, linear=layer.qkv)
        self._add(abi.ROTATE, abi.PRODUCTS, abi.QUERY, attention=self.attention)
        self._add(abi.ATTEND, abi.QUERY, abi.ATTENDED, attention=self.attention)
        self._prepare(abi.ATTENDED, layer.output)
        self._leave(layer.attention_norms, abi.ATTENDED, layer.output)
        self._enter(layer.mlp_norms, layer.up)
        self._add(
            abi.GATE if mlp.is_gated else abi.ACTIVATE,
            abi.NORMED,
            abi.ACTIVATED,
            linear=layer.up,
            activation=abi.ACTIVATIONS[mlp.activation],
        )
        self._prepare(abi.ACTIVATED, layer.down)
        self._leave(layer.mlp_norms, abi.ACTIVATED, layer.down)
        self._array = (abi.Operation * len(self._made))(*self._made)

    def structure(self) -> abi.Layer:
        """Return the structure for the kernels; valid while this object lives."""
        return abi.Layer(self._array, len(self._array))

    def _enter(self, norms: FusedNormPair, reader: PackedWeights) -> None:
        """Make the input of a part out of the residual, for the matrix `reader`."""
        kind = abi.ROUND if norms.before is None else abi.NORM
        self._add(kind, abi.RESIDUAL, abi.NORMED, norm=norms.before)
        self._prepare(abi.NORMED, reader)

    def _leave(self, norms: FusedNormPair, source: int, linear: PackedWeights) -> None:
        """Add the product of a part's last matrix to the residual."""
        if norms.after is None:
            self._add(abi.ADD, source, abi.RESIDUAL, linear=linear, factor=self._multiplier)
            return
        self._add(abi.STORE, source, abi.PRODUCTS, linear=linear)
        self._add(
            abi.ADD_NORM,
            abi.PRODUCTS,
            abi.RESIDUAL,
            norm=norms.after,
            factor=self._multiplier,
        )

    def _prepare(self, source: int, reader: PackedWeights) -> None:
        if reader.storage.prepared_row_bytes:
            self._add(abi.PREPARE, source, abi.PREPARED, linear=reader)

    def _add(
        self,
        kind: int,
        source: int,
        target: int,
        *,
        linear: PackedWeights | None = None,
        norm: FusedNorm | None = None,
        attention: abi.AttentionArgs | None = None,
        activation: int = 0,
        factor: float = 1.0,
    ) -> None:
        self._made.append(
            abi.Operation(
                kind=kind,
                input=source,
                output=target,
                activation=activation,
                factor=factor,
                linear=None if linear is None else ctypes.pointer(linear.structure()),
                norm=norm_pointer(norm),
                attention=None if attention is None else ctypes.pointer(attention),
            )
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
        value=pointer(cache.value),
        window=spec.kind.window or 0,
        group=cache.group,
        score_scale=scale,
        softcap=spec.kind.softcap or 0.0,
    )
