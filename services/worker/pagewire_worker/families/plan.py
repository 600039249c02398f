"""A decoder as data: the parts of its layers, their sizes and the names of their tensors.

The other modules of this folder make it from config.json. Backends compute the parts and know no
family.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.checkpoint.expert_stacks import ExpertStacks
from pagewire_worker.families.specs.rope_spec import RopeSpec
from pagewire_worker.families.specs.stage_spec import ALL_LAYERS, StageSpec
from pagewire_worker.kv.cache_groups import layer_groups
from pagewire_worker.kv.kv_cache import CacheShape

Activation = Literal["silu", "gelu", "gelu_tanh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NormSpec:
    """A norm by root mean square (Zhang and Sennrich, 2019) or a layer norm (Ba et al., 2016).

    Attributes:
        name: Name of its tensors without their ends.
        size: Values that are normalised together.
        offset: Added to the stored weight.
        is_centered: The mean is subtracted first, and there is a bias: a layer norm.
        rounds_late: The product with the weight is rounded, and not its first factor.
    """

    name: str
    size: int
    epsilon: float
    offset: float = 0.0
    is_centered: bool = False
    rounds_late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSpec:
    """A linear layer: the rows of several tensors, the first one first.

    Attributes:
        parts: (name without its end, number of outputs) of each tensor.
    """

    parts: tuple[tuple[str, int], ...]
    num_inputs: int
    has_bias: bool = False

    @property
    def num_outputs(self) -> int:
        """Outputs of all parts."""
        return sum(size for _, size in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSpec:
    """Latent attention (DeepSeek-AI, 2024) in its absorbed form: attention with one KV head.

    The key of a token is its normed latent, and behind it numbers that are rotated; its value is
    the latent. The query of a head is the product of its plain part with the rows of `expand` for
    keys, and behind it its rotated part. What a head sees is multiplied with the rows for values.

    Attributes:
        rank: Numbers of a latent.
        plain_dim: First numbers of the query of a head, which are not rotated.
        value_dim: Numbers of a head behind attention.
        norm: Of the latent.
        expand: Name of the matrix from a latent to the plain_dim + value_dim numbers of each head.
        absorbed: Names of its two parts where it is stored cut, [heads * rank, plain_dim] and
            [heads * value_dim, rank]; None for the whole matrix.
        query_norm, query_up: From the first outputs of qkv to queries; None: these are queries.
    """

    rank: int
    plain_dim: int
    value_dim: int
    norm: NormSpec
    expand: str
    query_norm: NormSpec | None = None
    query_up: LinearSpec | None = None
    absorbed: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    """Grouped-query attention (Ainslie et al., 2023).

    Attributes:
        qkv: Queries, keys and values of all heads.
        output: From all heads to the hidden state.
        query_norm, key_norm: Of each head, or of all heads together: their size says it.
        rope: None for no rotation; of the last numbers of heads where there is a latent.
        sinks: Name of the tensor of the heads' sinks, for a kind that has them.
        latent: None where keys and values are those of heads. With it qkv are queries, or what
            they are made of, and the key of one head.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    qkv: LinearSpec
    output: LinearSpec
    rope: RopeSpec | None
    kind: AttentionKind
    query_norm: NormSpec | None = None
    key_norm: NormSpec | None = None
    sinks: str | None = None
    latent: LatentSpec | None = None

    @property
    def num_query_groups(self) -> int:
        """Query heads per KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Values of queries, keys and values of a token."""
        key = self.num_kv_heads * self.head_dim
        return self.num_heads * self.head_dim, key, key

    @property
    def seen_dim(self) -> int:
        """Numbers that attention returns for a head."""
        return self.head_dim if self.latent is None else self.latent.rank

    @property
    def has_whole_norms(self) -> bool:
        """Whether norms take the queries of all heads together, and the keys."""
        norms = (self.query_norm, self.key_norm)
        return any(one is not None and one.size != self.head_dim for one in norms)

    def order_of(self, num_values: int) -> list[int] | None:
        """Return the published place of each of the first `num_values` of qkv; None for the same.

        Values of queries and keys have the order of RopeSpec.head_order, others their own.
        """
        order = None if self.rope is None else self.rope.head_order
        if order is None:
            return None
        if self.latent is not None:
            num_queries = self.qkv.num_outputs - self.head_dim
            own = self.latent.query_up is None
            queries: Sequence[int] = (self.query_order if own else None) or range(num_queries)
            return [*queries, *_turned(num_queries, self.latent.rank, order)][:num_values]
        num_rotated = min(num_values, sum(self.sizes[:2]))
        heads = range(0, num_rotated, self.head_dim)
        return [head + place for head in heads for place in order] + [
            *range(num_rotated, num_values)
        ]

    @property
    def query_order(self) -> list[int] | None:
        """The published place of each number of the queries of a latent; None for the same."""
        order = None if self.rope is None else self.rope.head_order
        if self.latent is None or order is None:
            return None
        plain = self.latent.plain_dim
        firsts = range(0, self.num_heads * (plain + len(order)), plain + len(order))
        return [place for first in firsts for place in _turned(first, plain, order)]


def _turned(first: int, num_plain: int, order: Sequence[int]) -> list[int]:
    """Return the places of a head from `first` on whose last numbers are in `order`."""
    begin = first + num_plain
    return [*range(first, begin), *(begin + place for place in order)]


@dataclass(frozen=True, slots=True)
class ClampedSwiglu:
    """(up + 1) * gate * sigmoid(slope * gate), of clamped gates and values (OpenAI, 2025).

    Attributes:
        limit: Greatest gate, and greatest size of the values that it multiplies.
        slope: Of the sigmoid.
    """

    limit: float
    slope: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpSpec:
    """Two linear layers with an activation between them.

    Attributes:
        up: With a gate (Shazeer, 2020) twice as wide: gates, then the values that they multiply.
        down: Back to the hidden state.
        size: Values behind the activation.
        clamped: Takes the place of `activation` and the product with the gate; None for them.
    """

    up: LinearSpec
    down: LinearSpec
    size: int
    activation: Activation = "silu"
    is_gated: bool = True
    clamped: ClampedSwiglu | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSpec:
    """Chooses the experts of a token and weighs them (Shazeer et al., 2017).

    A choice is a score plus its bias. Of the groups of experts with the greatest sums of their best
    choices (DeepSeek-AI, 2024), the experts with the greatest choices are taken. Of equal ones, the
    first is.

    Attributes:
        linear: From the hidden state to one value per expert, and behind them one for
            ExpertsSpec.has_shared_gate. It is computed in float32.
        score: An expert's part of the softmax of all values, or the sigmoid of its own.
        choice_bias: Name of the tensor of biases; None for none.
        is_normalised: Weights are divided by the sum of the chosen scores.
        factor: Of the weights.
        num_groups: Of equal size, in order.
        group_best: Best choices of a group that are summed.
    """

    linear: LinearSpec
    num_experts: int
    num_chosen: int
    score: Literal["softmax", "sigmoid"] = "softmax"
    choice_bias: str | None = None
    is_normalised: bool = True
    factor: float = 1.0
    num_groups: int = 1
    num_chosen_groups: int = 1
    group_best: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsSpec:
    """A mixture of experts: the weighted sum of the MLPs that a router chooses for each token.

    Attributes:
        experts: All of one shape; in a rank with whole experts, those it has, from `first` on.
        shared: An MLP of all tokens, whose output is added; None for none.
        has_shared_gate: That output is multiplied by the sigmoid of the router's last value.
    """

    router: RouterSpec
    experts: tuple[MlpSpec, ...]
    shared: MlpSpec | None = None
    has_shared_gate: bool = False
    first: int = 0

    @property
    def is_spread(self) -> bool:
        """Whether other ranks have other experts."""
        return len(self.experts) < self.router.num_experts


@dataclass(frozen=True, slots=True)
class BranchNorms:
    """The norms before a part of a layer, and behind it before its sum with the residual."""

    before: NormSpec | None
    after: NormSpec | None = None


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer: attention, then an MLP or experts, each added to the residual."""

    attention: AttentionSpec
    attention_norms: BranchNorms
    mlp: MlpSpec | ExpertsSpec
    mlp_norms: BranchNorms

    @property
    def mlps(self) -> tuple[MlpSpec, ...]:
        """One MLP of each shape, without experts that have the shape of the first."""
        if isinstance(self.mlp, MlpSpec):
            return (self.mlp,)
        shared = () if self.mlp.shared is None else (self.mlp.shared,)
        return self.mlp.experts[0], *shared

    @property
    def experts(self) -> ExpertsSpec | None:
        """Its experts, if it has any."""
        return self.mlp if isinstance(self.mlp, ExpertsSpec) else None


@dataclass(frozen=True, slots=True)
class LogitsSpec:
    """The last layer: softcap * tanh(x W^T / divisor / softcap).

    Attributes:
        name: Its matrix; None for that of the embedding.
        softcap: None for none.
    """

    name: str | None
    divisor: float = 1.0
    softcap: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether logits are the products themselves."""
        return self.divisor == 1.0 and self.softcap is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPlan:
    """A decoder-only transformer, or a stage of one.

    Attributes:
        max_positions: Longest context.
        dtype: Name of the type the weights were published in, or None.
        embedding: Name of its matrix.
        embedding_multiplier: Of what is looked up.
        has_narrow_multiplier: The multiplier is rounded to the type of the weights first.
        residual_multiplier: Of the parts of layers before they are added.
        norm: Behind the last layer.
        unused: Tensors that a checkpoint may hold and nothing reads.
        stacks: How the experts of a layer lie in single tensors; None where each has its own.
        stage: None for all layers.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    max_positions: int
    dtype: str | None
    layers: tuple[LayerSpec, ...]
    norm: NormSpec
    logits: LogitsSpec
    embedding: str = "model.embed_tokens"
    embedding_multiplier: float = 1.0
    has_narrow_multiplier: bool = False
    residual_multiplier: float = 1.0
    unused: tuple[str, ...] = ()
    stacks: ExpertStacks | None = None
    stage: StageSpec | None = None

    @property
    def ends(self) -> StageSpec:
        """The ends that it has: both, but for stages."""
        return self.stage or ALL_LAYERS

    @property
    def reads_embedding(self) -> bool:
        """Whether it reads the matrix of the embedding, to look up tokens or for logits."""
        return self.ends.is_first or (self.ends.is_last and self.logits.name is None)

    @property
    def attention(self) -> AttentionSpec:
        """Attention of the first layer; heads have the same shape in all layers."""
        return self.layers[0].attention

    @property
    def kinds(self) -> list[AttentionKind]:
        """How the layers attend, layer by layer."""
        return [layer.attention.kind for layer in self.layers]

    @property
    def cache_shape(self) -> CacheShape:
        """Shape of the cache per position, with the groups of layers that share a window."""
        windows = [kind.window for kind in self.kinds]
        groups = layer_groups(windows, self.max_positions)
        window = windows[0] if len(set(windows)) == 1 else None
        if self.stage is not None:
            groups, window = self.stage.groups, self.stage.window
        heads, size = self.attention.num_kv_heads, self.attention.head_dim
        latent = self.attention.latent
        rank = None if latent is None else latent.rank
        return CacheShape(len(self.layers), heads, size, window, groups, rank)

    @property
    def first_context(self) -> int | None:
        """Positions beyond which a longest context changes the rotation of all of them."""
        ropes = (layer.attention.rope for layer in self.layers)
        found = {None if rope is None else rope.first_context for rope in ropes} - {None}
        return min((one for one in found if one is not None), default=None)

    @property
    def inner_sizes(self) -> frozenset[int]:
        """Values behind the activations of all MLPs."""
        return frozenset(mlp.size for layer in self.layers for mlp in layer.mlps)

    @property
    def has_experts(self) -> bool:
        """Whether any layer is a mixture of experts."""
        return bool(self.expert_sizes)

    @property
    def expert_sizes(self) -> Mapping[int, int]:
        """How many experts a layer has, by its number; without layers that have none."""
        found = {number: layer.experts for number, layer in enumerate(self.layers)}
        return {number: one.router.num_experts for number, one in found.items() if one is not None}

    @property
    def num_chosen(self) -> int:
        """Most experts that one token has in a layer."""
        found = (layer.experts for layer in self.layers)
        return max((one.router.num_chosen for one in found if one is not None), default=0)
