"""Makes the operations of kernels/operations.h out of the layers of a decoder."""

import ctypes
from collections.abc import Sequence

from torch import Tensor

from pagewire_worker.backend.collectives import RankTopology
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
from pagewire_worker.cpu_kernels.structures import (
    adapters_from,
    attention_structure,
    linear_array,
    norm_pointer,
    router_structure,
)
from pagewire_worker.families.plan import LinearSpec
from pagewire_worker.kv.kv_cache import LayerCache


class LayerOperations:
    """The operations of one layer, and the structures that they point to.

    Args:
        multiplier: Of attention and MLP before they are added to the residual.
        adapters: Of the matrices; None for none.
        place: Among the ranks that have parts of the layer, whose last products are summed; None
            for a whole layer.
    """

    def __init__(
        self,
        layer: FusedLayer,
        cache: LayerCache,
        multiplier: float,
        adapters: FusedAdapterStore | None = None,
        *,
        place: RankTopology | None = None,
    ) -> None:
        self._place = place
        self._multiplier = multiplier
        self._adapters = adapters
        self._made: list[abi.Operation] = []
        self._router: abi.RouterArgs | None = None
        self.attention = attention_structure(layer, cache)
        spec = layer.spec.attention
        self._enter(layer.attention_norms, layer.qkv[0])
        self._store_all(layer.qkv, self._lower(abi.NORMED, spec.qkv))
        attended = self._attend() if layer.latent is None else self._attend_latent(layer)
        cut = self._cut(attended, layer.output)
        self._leave(layer.attention_norms, cut, layer.output, spec.output)
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
            num_cuts=len(mlp.down),
        )

    def _mix(self, norms: FusedNormPair, experts: FusedExperts) -> None:
        """Add a mixture of experts to the residual."""
        assert norms.after is None
        router, first = router_structure(experts), experts.experts[0]
        self._router = router
        ups = linear_array([one.up for one in experts.experts])
        by_slice = zip(*(one.down for one in experts.experts), strict=True)
        downs = linear_array([one for each in by_slice for one in each])
        num_slices = len(first.down)
        self._enter(norms, first.up)
        self._add(abi.STORE, abi.NORMED, abi.PRODUCTS, linear=experts.router)
        self._add(abi.ROUTE, abi.PRODUCTS, abi.CHOSEN, linear=experts.router, router=router)
        self._add(abi.SORT, abi.CHOSEN, abi.STARTS, router=router, num_slices=num_slices)
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
            num_cuts=num_slices,
        )
        own = self._lower(abi.EXPERT_ACTIVATED, *(one.down for one in specs), router=router)
        self._store_experts(first.down, downs, own, router)
        self._collect(experts, router)

    def _collect(self, experts: FusedExperts, router: abi.RouterArgs) -> None:
        """Add the rows of experts to the residual, those of all ranks."""
        down = experts.experts[0].down
        source, num_slices, hidden = abi.EXPERT_OUTPUT, len(down), down[0].storage.num_outputs
        columns = 0, hidden
        if experts.spec.is_spread:
            assert self._place is not None
            source, columns = abi.EXPERT_EXCHANGED, _columns_of(self._place, num_slices * hidden)
            self._add(
                abi.EXPERT_EXCHANGE,
                abi.EXPERT_OUTPUT,
                source,
                router=router,
                columns=columns,
                num_slices=num_slices,
            )
            if num_slices > 1:
                # A rank collects whole slices.
                num_slices, columns = num_slices // self._place.tp_size, (0, hidden)
        if self._place is None and num_slices == 1:
            place = source, abi.RESIDUAL
            self._add(abi.COLLECT, *place, router=router, factor=self._multiplier, columns=columns)
            return
        place = source, abi.PRODUCTS
        self._add(abi.COLLECT, *place, router=router, num_slices=num_slices, columns=columns)
        self._add_parts(None, num_slices)

    def _store_experts(
        self,
        first: Sequence[PackedWeights],
        downs: "ctypes.Array[abi.LinearArgs]",
        own: "ctypes.Array[abi.AdapterArgs] | None",
        router: abi.RouterArgs,
    ) -> None:
        """Store the products of the last matrices of experts.

        Args:
            first: Slices of the first expert's.
            downs: Those of all experts, by slice.
            own: Their adapters.
        """
        slices = len(first)
        if first[0].storage.prepared_row_bytes:
            place = abi.EXPERT_ACTIVATED, abi.EXPERT_PREPARED
            self._add(abi.EXPERT_PREPARE, *place, linears=downs, router=router, num_slices=slices)
        self._add(
            abi.EXPERT_STORE,
            abi.EXPERT_ACTIVATED,
            abi.EXPERT_OUTPUT,
            linears=downs,
            adapters=own,
            router=router,
            num_slices=slices,
        )

    def _share(self, mlp: FusedMlp) -> None:
        """Compute the expert of all tokens."""
        self._prepare(abi.NORMED, mlp.up)
        self._activate(mlp)
        own = self._lower(abi.ACTIVATED, mlp.spec.down)
        self._store(abi.ACTIVATED, mlp.down, own)

    def _enter(self, norms: FusedNormPair, reader: PackedWeights) -> None:
        """Make the input of a part out of the residual, for the matrix `reader`."""
        kind = abi.ROUND if norms.before is None else abi.NORM
        self._add(kind, abi.RESIDUAL, abi.NORMED, norm=norms.before)
        self._prepare(abi.NORMED, reader)

    def _leave(
        self,
        norms: FusedNormPair,
        source: int,
        linears: Sequence[PackedWeights],
        spec: LinearSpec,
    ) -> None:
        """Add the product of a part's last matrix to the residual."""
        own, factor = self._lower(source, spec), self._multiplier
        if norms.after is None and self._place is None and len(linears) == 1:
            self._prepare(source, linears[0])
            place = source, abi.RESIDUAL
            self._add(abi.ADD, *place, linear=linears[0], adapters=own, factor=factor)
            return
        self._store(source, linears, own)
        self._add_parts(norms.after, len(linears))

    def _cut(self, source: int, linears: Sequence[PackedWeights]) -> int:
        """Cut the input of slices of a matrix, and return its buffer."""
        if len(linears) == 1:
            return source
        place = source, abi.SLICED
        self._add(abi.SLICE, *place, linear=linears[0], num_slices=len(linears))
        return abi.SLICED

    def _store(
        self,
        source: int,
        linears: Sequence[PackedWeights],
        own: "ctypes.Array[abi.AdapterArgs] | None",
    ) -> None:
        """Store the products of slices of a matrix."""
        self._prepare(source, linears[0], len(linears))
        self._add(
            abi.STORE,
            source,
            abi.PRODUCTS,
            linears=linear_array(linears),
            columns=(0, linears[0].storage.num_outputs),
            adapters=own,
            num_slices=len(linears),
        )

    def _add_parts(self, norm: FusedNorm | None, num_slices: int) -> None:
        """Add the products to the residual; of all slices, and of all ranks."""
        if num_slices > 1:
            self._add(abi.SUM_SLICES, abi.PRODUCTS, abi.PRODUCTS, num_slices=num_slices)
        if self._place is not None:
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

    def _prepare(self, source: int, reader: PackedWeights, num_slices: int = 1) -> None:
        if reader.storage.prepared_row_bytes:
            place = source, abi.PREPARED
            self._add(abi.PREPARE, *place, linear=reader, num_slices=num_slices)

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
        num_slices: int = 1,
        num_cuts: int = 1,
    ) -> None:
        """Append an operation.

        Args:
            linears: Of all experts or slices, in the place of `linear`; `adapters` likewise.
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
                num_slices=num_slices,
                num_cuts=num_cuts,
            )
        )


def _columns_of(place: RankTopology, num_columns: int) -> tuple[int, int]:
    """Return the first column that a rank collects of the rows of experts, and how many."""
    panels = num_columns // PANEL
    first, last = (rank * panels // place.tp_size for rank in (place.tp_rank, place.tp_rank + 1))
    return first * PANEL, (last - first) * PANEL
