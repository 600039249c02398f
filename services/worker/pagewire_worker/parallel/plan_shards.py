"""Cuts a model by the ranks of a group: the plan of one rank, and its part of each tensor.

Heads and the values inside of MLPs and experts are divided: the matrices before them by their
outputs, those behind them by their inputs, so that a layer sums twice over the ranks (Shoeybi et
al., 2019). With whole experts, ranks have some of them each (Lepikhin et al., 2020). The vocabulary
is divided, too. Every rank has all norms, routers and latents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.checkpoint.weights import Shape
from pagewire_worker.families.plan import (
    AttentionSpec,
    ExpertsSpec,
    LatentSpec,
    LayerSpec,
    LinearSpec,
    MlpSpec,
    ModelPlan,
)

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a tensor that a rank reads.

    Attributes:
        shape: Of the whole tensor.
        rows: Ranges of its first dimension, in order.
        columns: Range of its second dimension; None for all.
    """

    shape: Shape
    rows: tuple[tuple[int, int], ...]
    columns: tuple[int, int] | None = None

    def rows_of(self, tensor: Tensor) -> Tensor:
        """Return the part of the first dimension of `tensor`; a view where it is one range."""
        parts = [tensor[first:last] for first, last in self.rows]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def columns_of(self, tensor: Tensor) -> Tensor:
        """Return the part of the second dimension of `tensor`, with memory of its own."""
        if self.columns is None:
            return tensor
        first, last = self.columns
        return tensor[:, first:last].contiguous()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShard:
    """The model of one rank.

    Attributes:
        plan: With the sizes of its part.
        cuts: By the names of tensors; those without one are read whole.
        unread: Tensors that other ranks read; with a dot at its end, a name stands for all that
            begin with it.
        first_token: The first token of its part of the vocabulary.
        num_tokens: Tokens of the whole vocabulary.
    """

    plan: ModelPlan
    cuts: Mapping[str, Cut]
    unread: frozenset[str]
    first_token: int
    num_tokens: int


def shard_plan(plan: ModelPlan, topology: RankTopology) -> PlanShard:
    """Return the part of a rank. Raises StartupError naming what cannot be divided."""
    cutter = _Cutter(topology)
    width = -(-plan.vocab_size // topology.tp_size)
    first = min(topology.tp_rank * width, plan.vocab_size)
    last = min(first + width, plan.vocab_size)
    # The last rank has what is left, which may be less than the others have.
    if (topology.tp_size - 1) * width >= plan.vocab_size:
        raise _refused(f"vocab_size ({plan.vocab_size}) leaves a rank without tokens")
    shape = (plan.vocab_size, plan.hidden_size)
    for name in (plan.embedding, plan.logits.name):
        if name is not None:
            cutter.cuts[f"{name}.weight"] = Cut(shape, ((first, last),))
    layers = tuple(cutter.layer(layer) for layer in plan.layers)
    local = replace(plan, vocab_size=last - first, layers=layers)
    return PlanShard(
        plan=local,
        cuts=cutter.cuts,
        unread=frozenset(cutter.unread),
        first_token=first,
        num_tokens=plan.vocab_size,
    )


def kv_heads_of(num_kv_heads: int, tp_rank: int, tp_size: int) -> range:
    """Return the KV heads of a rank; ranks share one where there are fewer heads."""
    first = tp_rank * num_kv_heads // tp_size
    return range(first, first + max(1, num_kv_heads // tp_size))


def experts_of(num_experts: int, tp_rank: int, tp_size: int) -> range:
    """Return the experts of a rank with whole ones; kernels/exchange.h has the same formula."""
    first, last = (rank * num_experts // tp_size for rank in (tp_rank, tp_rank + 1))
    return range(first, last)


class _Cutter:
    def __init__(self, topology: RankTopology) -> None:
        self._rank, self._size = topology.tp_rank, topology.tp_size
        self._has_whole_experts = topology.has_whole_experts
        self.cuts: dict[str, Cut] = {}
        self.unread: set[str] = set()

    def layer(self, layer: LayerSpec) -> LayerSpec:
        attention, mlp = layer.attention, layer.mlp
        latent = attention.latent
        return replace(
            layer,
            attention=self._attention(attention)
            if latent is None
            else self._latent_attention(attention, latent),
            mlp=self._experts(mlp) if isinstance(mlp, ExpertsSpec) else self._mlp(mlp),
        )

    def _experts(self, spec: ExpertsSpec) -> ExpertsSpec:
        """Divide the experts or each of them; every rank chooses the same ones."""
        shared = None if spec.shared is None else self._mlp(spec.shared)
        if self._has_whole_experts:
            return replace(self._own_experts(spec), shared=shared)
        return replace(spec, experts=tuple(map(self._mlp, spec.experts)), shared=shared)

    def _own_experts(self, spec: ExpertsSpec) -> ExpertsSpec:
        own = experts_of(len(spec.experts), self._rank, self._size)
        if len(spec.experts) < self._size:
            raise _refused(
                f"num_experts ({len(spec.experts)}) are fewer than the {self._size} ranks",
                "enable_expert_parallel",
            )
        for number, one in enumerate(spec.experts):
            if number not in own:
                self.unread |= {f"{name}." for name, _ in (*one.up.parts, *one.down.parts)}
        return replace(spec, experts=spec.experts[own.start : own.stop], first=own.start)

    def _latent_attention(self, spec: AttentionSpec, latent: LatentSpec) -> AttentionSpec:
        """Divide the heads; every rank has the latents, the key of one head that all share."""
        first, last = self._part("num_attention_heads", spec.num_heads)
        qkv, query_up = spec.qkv, latent.query_up
        num_queries = qkv.num_outputs - spec.head_dim
        if query_up is None:
            size = num_queries // spec.num_heads
            ranges = [(first * size, last * size), (num_queries, qkv.num_outputs)]
            qkv = self._by_outputs(qkv, ranges)
        else:
            size = query_up.num_outputs // spec.num_heads
            query_up = self._by_outputs(query_up, [(first * size, last * size)])
        self._cut_latent(spec, latent, (first, last))
        columns = first * latent.value_dim, last * latent.value_dim
        return replace(
            spec,
            num_heads=last - first,
            qkv=qkv,
            output=self._by_inputs(spec.output, columns),
            latent=replace(latent, query_up=query_up),
        )

    def _cut_latent(self, spec: AttentionSpec, latent: LatentSpec, heads: tuple[int, int]) -> None:
        """Cut the matrices between latents and heads."""
        both = latent.plain_dim + latent.value_dim
        matrices = [(latent.expand, both, latent.rank)]
        if latent.absorbed is not None:
            keys, values = latent.absorbed
            matrices = [
                (keys, latent.rank, latent.plain_dim),
                (values, latent.value_dim, latent.rank),
            ]
        for name, size, num_inputs in matrices:
            rows = heads[0] * size, heads[1] * size
            self.cuts[f"{name}.weight"] = Cut((spec.num_heads * size, num_inputs), (rows,))

    def _attention(self, spec: AttentionSpec) -> AttentionSpec:
        if spec.has_whole_norms:
            raise _refused("norms over all heads together are not divided between ranks yet")
        heads = self._part("num_attention_heads", spec.num_heads)
        kv_heads = self._kv_heads(spec)
        size = spec.head_dim
        key = spec.num_heads * size
        value = key + spec.num_kv_heads * size
        ranges = [
            (begin + first * size, begin + last * size)
            for begin, (first, last) in ((0, heads), (key, kv_heads), (value, kv_heads))
        ]
        if spec.sinks is not None:
            self.cuts[spec.sinks] = Cut((spec.num_heads,), (heads,))
        return replace(
            spec,
            num_heads=heads[1] - heads[0],
            num_kv_heads=kv_heads[1] - kv_heads[0],
            qkv=self._by_outputs(spec.qkv, ranges),
            output=self._by_inputs(spec.output, (heads[0] * size, heads[1] * size)),
        )

    def _kv_heads(self, spec: AttentionSpec) -> tuple[int, int]:
        """Return the range of a rank's KV heads; ranks share one where there are fewer heads."""
        if max(self._size, spec.num_kv_heads) % min(self._size, spec.num_kv_heads):
            raise self._indivisible("num_key_value_heads", spec.num_kv_heads)
        heads = kv_heads_of(spec.num_kv_heads, self._rank, self._size)
        return heads.start, heads.stop

    def _mlp(self, spec: MlpSpec) -> MlpSpec:
        first, last = self._part("intermediate_size", spec.size)
        ranges = [(first, last)]
        if spec.is_gated:
            ranges.append((spec.size + first, spec.size + last))
        return replace(
            spec,
            up=self._by_outputs(spec.up, ranges),
            down=self._by_inputs(spec.down, (first, last)),
            size=last - first,
        )

    def _by_outputs(self, spec: LinearSpec, ranges: Ranges) -> LinearSpec:
        """Return a matrix of some outputs, given as ranges of those of all parts together."""
        parts, begin = [], 0
        for name, size in spec.parts:
            inside = [
                (max(first, begin) - begin, min(last, begin + size) - begin)
                for first, last in ranges
                if first < begin + size and last > begin
            ]
            rows = tuple(inside)
            self.cuts[f"{name}.weight"] = Cut((size, spec.num_inputs), rows)
            if spec.has_bias:
                self.cuts[f"{name}.bias"] = Cut((size,), rows)
            parts.append((name, sum(last - first for first, last in rows)))
            begin += size
        return replace(spec, parts=tuple(parts))

    def _by_inputs(self, spec: LinearSpec, columns: tuple[int, int]) -> LinearSpec:
        """Return a matrix of some inputs; the first rank adds the bias to its part of the sum."""
        for name, size in spec.parts:
            shape = size, spec.num_inputs
            self.cuts[f"{name}.weight"] = Cut(shape, ((0, size),), columns)
            if spec.has_bias and self._rank > 0:
                self.unread.add(f"{name}.bias")
        has_bias = spec.has_bias and self._rank == 0
        return replace(spec, num_inputs=columns[1] - columns[0], has_bias=has_bias)

    def _part(self, name: str, size: int) -> tuple[int, int]:
        if size % self._size:
            raise self._indivisible(name, size)
        part = size // self._size
        return self._rank * part, (self._rank + 1) * part

    def _indivisible(self, name: str, size: int) -> StartupError:
        return _refused(f"{name} ({size}) cannot be divided between {self._size} ranks")


def _refused(reason: str, field: str = "tensor_parallel_size") -> StartupError:
    return StartupError(f"--{field.replace('_', '-')}: {reason}", field=field)
