"""Heads that draft: one decoder layer over a target's hidden states and the tokens behind them.

EAGLE (Li et al., 2024) guesses the next state of the target, EAGLE-3 (Li et al., 2025) the next
token, of the states between its layers. Row i reads the state of token i and token i + 1, and gives
token i + 2. Behind the last state, a head reads its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_worker.backend.attention import AttentionBackend
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.layers.linear import Linear
from pagewire_worker.layers.norm import Norm
from pagewire_worker.models.decoder import DecoderLayer
from pagewire_worker.models.layer_inputs import LayerInputs

Entry = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(embeddings, states), [tokens, hidden] each -> what attention reads, and what it is added to."""


@dataclass(frozen=True, slots=True)
class WideEntry:
    """That of EAGLE-3: attention reads normed embeddings and states side by side.

    Attributes:
        adds_normed: The normed states are what attention is added to, not the states.
    """

    token_norm: Norm
    state_norm: Norm
    adds_normed: bool

    def __call__(self, embeddings: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return [tokens, 2 * hidden] and [tokens, hidden]."""
        normed = self.state_norm(states)
        wide = torch.cat((self.token_norm(embeddings), normed), dim=-1)
        return wide, normed if self.adds_normed else states


@dataclass(frozen=True, slots=True)
class MergedEntry:
    """That of EAGLE: one product makes a state of an embedding and a state.

    Attributes:
        norms: Of embeddings and of states; None for none.
        before: Of the product, before attention; None for none.
    """

    merge: Linear
    norms: tuple[Norm, Norm] | None
    before: Norm | None

    def __call__(self, embeddings: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return [tokens, hidden] twice."""
        if self.norms is not None:
            embeddings, states = self.norms[0](embeddings), self.norms[1](states)
        merged = self.merge(torch.cat((embeddings, states), dim=-1))
        return merged if self.before is None else self.before(merged), merged


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHead:
    """A head with its weights, without its cache.

    Attributes:
        taps: Layers of the target whose incoming states it reads, as of StateTap.
        fuse: Makes one state of those of all taps; None for one that is read as it is.
        embedding: [vocabulary of the target, hidden].
        after: Norm of the state that the next row reads; None for none.
        norm: Norm before the logits; None for none.
        output: Makes the logits; None for the last layer of the target.
        target_ids: Token of the target by token of the head, int64 [vocabulary of the head]; None
            where they are the same.
    """

    taps: tuple[int, ...]
    fuse: Linear | None
    embedding: Tensor
    enter: Entry
    layer: DecoderLayer
    after: Norm | None = None
    norm: Norm | None = None
    output: Linear | None = None
    target_ids: Tensor | None = None

    @property
    def hidden_size(self) -> int:
        """Length of a state of the head."""
        return self.embedding.shape[1]

    def fused(self, states: Tensor) -> Tensor:
        """Return the states that rows read, [tokens, hidden], of [tokens, taps * hidden]."""
        states = states.to(self.embedding.dtype)
        return states if self.fuse is None else self.fuse(states)

    def forward(
        self, batch: StepBatch, states: Tensor, cache: KvCache, attention: AttentionBackend
    ) -> Tensor:
        """Run rows of tokens and `states` [tokens, hidden].

        Returns:
            The states of the output rows, which the rows behind them read, [outputs, hidden].
        """
        layer, rotary = self.layer, self.layer.rotary
        inputs = LayerInputs(
            None if rotary is None else rotary.at(batch.positions),
            batch.slot_mapping,
            cache.layers[0],
            attention.prepare(batch.attention),
            batch.faults,
        )
        x, hidden = self.enter(functional.embedding(batch.token_ids, self.embedding), states)
        hidden = hidden + layer.attention(x, inputs)
        hidden = layer.mlp_branch(hidden, layer.mlp).index_select(0, batch.output_rows)
        return hidden if self.after is None else self.after(hidden)

    def logits(self, hidden: Tensor, target: Callable[[Tensor], Tensor]) -> Tensor:
        """Return float32 [rows, vocabulary of the head] for [rows, hidden] of `forward`.

        Args:
            target: Makes the logits where the head has no layer for it.
        """
        normed = hidden if self.norm is None else self.norm(hidden)
        return target(normed) if self.output is None else self.output(normed).float()
