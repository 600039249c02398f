"""Makes the operations of kernels/operations.h out of the layers of a decoder."""

import ctypes
from collections.abc import Sequence

from torch import Tensor

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.adapter_store import FusedAdapterStore
from pagewire_worker.cpu_kernels.library import pointer
from pagewire_worker.cpu_kernels.packed_layers import (
    FusedExperts,
    FusedLayer,
    FusedMlp,
    FusedNorm,
    FusedNormPair,
)
from pagewire_worker.cpu_kernels.packing import PANEL, PackedWeights
from pagewire_worker.families.plan import LinearSpec
from pagewire_worker.kv.kv_cache import LayerCache


class LayerOperations:
    """The operations of one layer, and the structures that they point to.

    Args:
        multiplier: Of attention and MLP before they are added to the residual.
        adapters: Of the matrices; None for none.
        is_divided: Whether ranks have parts of the layer, whose last products are summed.
    """

    def __init__(
        self,
        layer: FusedLayer,
        cache: LayerCache,
        multiplier: float,
        adapters: FusedAdapterStore | None = None,
        *,
        is_divided: bool = False,
    ) -> None:
        self._is_divided = is_divided
        self._multiplier = multiplier
        self._adapters = adapters
        self._made: list[abi.Operation] = []
        self._router: abi.RouterArgs | None = None
        self.attention = attention_structure(layer, cache)
        spec = layer.spec.attention
        self._enter(layer.attention_norms, layer.qkv[0])
        self._store_all(layer.qkv, self._lower(abi.NORMED, spec.qkv))
        attended = self._attend() if layer.latent is None else self._attend_latent(layer)
        self._prepare(attended, layer.output)
        self._leave(layer.attention_norms, attended, layer.output, spec.output)
        if isinstance(layer.mlp, FusedMlp):
            self._enter(layer.mlp_norms, layer.mlp.up)
            self._activate(layer.mlp)
            self._leave(layer.mlp_norms, abi.ACTIVATED, layer.mlp.down, layer.mlp.spec.down)
        else:
            self._mix(layer.mlp_norms, layer.mlp)
        self._array = (abi.Operation * len(self._made))(*self._made)

    def structure(self) -> abi.Layer:
        """Return the structure for the kernels; valid while this object lives."""
        return abi.Layer(self._array, len(self._array))

    def _store_all(
        self, linears: Sequence[PackedWeights], own: "ctypes.Array[abi.AdapterArgs] | None"
    ) -> None:
        """Store the products of matrices side by side; the input of the first is prepared.

        Args:
            own: Adapters of all outputs together.
        """
        num_columns, column = sum(one.storage.num_outputs for one in linears), 0
        for linear in linears:
            if column:
                self._prepare(abi.NORMED, linear)
            self._add(
                abi.STORE,
                abi.NORMED,
                abi.PRODUCTS,
                linear=linear,
                adapters=own and adapters_from(own[0], column // PANEL),
                columns=(column, num_columns),
            )
            column += linear.storage.num_outputs

    def _attend(self) -> int:
        """Attend with the products; return the buffer of what heads see."""
        self._add(abi.ROTATE, abi.PRODUCTS, abi.QUERY, attention=self.attention)
        self._add(abi.ATTEND, abi.QUERY, abi.ATTENDED, attention=self.attention)
        return abi.ATTENDED

    def _attend_latent(self, layer: FusedLayer) -> int:
        """Do the same with a latent."""
        latent, (queries,) = layer.latent, layer.qkv
        assert latent is not None
        place = abi.PRODUCTS, abi.NORMED
        self._add(abi.LATENT_KEY, *place, linear=queries, attention=self.attention)
        if latent.query_up is not None:
            queries = latent.query_up
            self._prepare(abi.NORMED, queries)
            self._add(abi.STORE, abi.NORMED, abi.PRODUCTS, linear=queries)
        place = abi.PRODUCTS, abi.ATTENDED
        self._add(abi.LATENT_QUERY, *place, linear=queries, attention=self.attention)
        absorbing, expanding = linear_array(latent.query), linear_array(latent.value)
        self._add(abi.ABSORB, abi.ATTENDED, abi.QUERY, linears=absorbing)
        self._add(abi.ATTEND, abi.QUERY, abi.ATTENDED, attention=self.attention)
        self._add(abi.EXPAND, abi.ATTENDED, abi.QUERY, linears=expanding)
        return abi.QUERY

    def count_experts(self, counts: Tensor) -> None:
        """Add the tokens of each expert to `counts`, int64 [experts], in all steps to come.

        It must live as long as this object.
        """
        assert self._router is not None
        self._router.counts = pointer(counts)

    def _activate(self, mlp: FusedMlp) -> None:
        """Compute an MLP up to the input of its last matrix."""
        adapters = self._lower(abi.NORMED, mlp.spec.up)
        self._add(
            abi.GATE if mlp.spec.is_gated else abi.ACTIVATE,
            abi.NORMED,
            abi.ACTIVATED,
            linear=mlp.up,
            adapters=adapters,
            activation=abi.ActivationArgs.of(mlp.spec.activation, mlp.spec.clamped),
        )
        self._prepare(abi.ACTIVATED, mlp.down)

    def _mix(self, norms: FusedNormPair, experts: FusedExperts) -> None:
        """Add a mixture of experts to the residual."""
        assert norms.after is None
        router, first = router_structure(experts), experts.experts[0]
        self._router = router
        ups = linear_array([one.up for one in experts.experts])
        downs = linear_array([one.down for one in experts.experts])
        self._enter(norms, first.up)
        self._add(abi.STORE, abi.NORMED, abi.PRODUCTS, linear=experts.router)
        self._add(abi.ROUTE, abi.PRODUCTS, abi.CHOSEN, linear=experts.router, router=router)
        self._add(abi.SORT, abi.CHOSEN, abi.STARTS, router=router)
        self._add(abi.SPREAD, abi.NORMED, abi.EXPERT_INPUT, linears=ups, router=router)
        if experts.shared is not None:
            self._share(experts.shared)
        specs = experts.spec.experts
        own = self._lower(abi.EXPERT_INPUT, *(one.up for one in specs), router=router)
        self._add(
            abi.EXPERT_GATE,
            abi.EXPERT_INPUT,
            abi.EXPERT_ACTIVATED,
            linears=ups,
            adapters=own,
            activation=abi.ActivationArgs.of(first.spec.activation, first.spec.clamped),
            router=router,
        )
        own = self._lower(abi.EXPERT_ACTIVATED, *(one.down for one in specs), router=router)
        if first.down.storage.prepared_row_bytes:
            place = abi.EXPERT_ACTIVATED, abi.EXPERT_PREPARED
            self._add(abi.EXPERT_PREPARE, *place, linears=downs, router=router)
        place = abi.EXPERT_ACTIVATED, abi.EXPERT_OUTPUT
        self._add(abi.EXPERT_STORE, *place, linears=downs, adapters=own, router=router)
        if not self._is_divided:
            place = abi.EXPERT_OUTPUT, abi.RESIDUAL
            self._add(abi.COLLECT, *place, router=router, factor=self._multiplier)
            return
        self._add(abi.COLLECT, abi.EXPERT_OUTPUT, abi.PRODUCTS, router=router)
        self._add_of_ranks(None)

    def _share(self, mlp: FusedMlp) -> None:
        """Compute the expert of all tokens."""
        self._prepare(abi.NORMED, mlp.up)
        self._activate(mlp)
        own = self._lower(abi.ACTIVATED, mlp.spec.down)
        self._add(abi.STORE, abi.ACTIVATED, abi.PRODUCTS, linear=mlp.down, adapters=own)

    def _enter(self, norms: FusedNormPair, reader: PackedWeights) -> None:
        """Make the input of a part out of the residual, for the matrix `reader`."""
        kind = abi.ROUND if norms.before is None else abi.NORM
        self._add(kind, abi.RESIDUAL, abi.NORMED, norm=norms.before)
        self._prepare(abi.NORMED, reader)

    def _leave(
        self, norms: FusedNormPair, source: int, linear: PackedWeights, spec: LinearSpec
    ) -> None:
        """Add the product of a part's last matrix to the residual."""
        own, factor = self._lower(source, spec), self._multiplier
        if norms.after is None and not self._is_divided:
            place = source, abi.RESIDUAL
            self._add(abi.ADD, *place, linear=linear, adapters=own, factor=factor)
            return
        self._add(abi.STORE, source, abi.PRODUCTS, linear=linear, adapters=own)
        self._add_of_ranks(norms.after)

    def _add_of_ranks(self, norm: FusedNorm | None) -> None:
        """Add the products to the residual; those of all ranks where the layer is divided."""
        if self._is_divided:
            self._add(abi.REDUCE, abi.PRODUCTS, abi.PRODUCTS)
        place = abi.PRODUCTS, abi.RESIDUAL
        self._add(abi.ADD_NORM, *place, norm=norm, factor=self._multiplier)

    def _lower(
        self, source: int, *specs: LinearSpec, router: abi.RouterArgs | None = None
    ) -> "ctypes.Array[abi.AdapterArgs] | None":
        """Compute the first product of the adapters of a matrix, and return these.

        Args:
            router: Of experts, of which each has one of the matrices; None for a single matrix.
        """
        found = None if self._adapters is None else self._adapters.structures(specs)
        if found is not None:
            kinds = (abi.LOWER, abi.LOW) if router is None else (abi.EXPERT_LOWER, abi.EXPERT_LOW)
            self._add(kinds[0], source, kinds[1], adapters=found, router=router)
        return found

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
        linears: "ctypes.Array[abi.LinearArgs] | None" = None,
        router: abi.RouterArgs | None = None,
        adapters: "ctypes.Array[abi.AdapterArgs] | None" = None,
        norm: FusedNorm | None = None,
        attention: abi.AttentionArgs | None = None,
        activation: abi.ActivationArgs | None = None,
        factor: float = 1.0,
        columns: tuple[int, int] | None = None,
    ) -> None:
        """Append an operation.

        Args:
            linears: Of all experts, in the place of `linear`; `adapters` likewise.
            columns: The first one of the outputs and all in a row; by default, only these.
        """
        if linear is not None:
            linears = linear_array([linear])
            columns = columns or (0, linear.storage.num_outputs)
        first_column, num_columns = columns or (0, 0)
        first = None if linears is None else ctypes.cast(linears, ctypes.POINTER(abi.LinearArgs))
        own = None if adapters is None else ctypes.cast(adapters, ctypes.POINTER(abi.AdapterArgs))
        self._made.append(
            abi.Operation(
                kind=kind,
                input=source,
                output=target,
                factor=factor,
                activation=activation or abi.ActivationArgs.of(),
                linear=first,
                norm=norm_pointer(norm),
                attention=None if attention is None else ctypes.pointer(attention),
                router=None if router is None else ctypes.pointer(router),
                adapters=own,
                first_column=first_column,
                num_columns=num_columns,
            )
        )


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
