"""Splits a model of transformers in two: token ids to hidden states, and hidden states to logits.

The first half is the module whose `last_hidden_state` the causal language model turns into logits.
The second half is the causal language model with that module replaced by one that returns its
input. So it keeps all else that an architecture does: biases, scales, soft caps, projections.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pagewire_worker.kv.kv_cache import CacheShape
from pagewire_worker.transformers_backend.interface import handled_by
from pagewire_worker.transformers_backend.probe import AttentionLayer, Recorder, shared_shape
from pagewire_worker.transformers_backend.refusal import Refusal

NUM_PROBE_TOKENS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitModel:
    """A causal language model, split in two.

    Attributes:
        causal: The whole model.
        base: Its first half.
        head: Its second half.
        layers: Calls of attention in `base`, in order.
    """

    causal: Any
    base: nn.Module
    head: nn.Module
    layers: tuple[AttentionLayer, ...]
    hidden_size: int

    @property
    def cache_shape(self) -> CacheShape:
        """Shape of the cache per position."""
        return shared_shape(list(self.layers))

    def hidden_states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """Return [tokens, hidden] for ids and positions [tokens]."""
        output = self.base(
            input_ids=token_ids.unsqueeze(0), position_ids=positions.unsqueeze(0), use_cache=False
        )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Return [rows, vocab] in float32 for hidden states [rows, hidden]."""
        output = self.head(input_ids=None, inputs_embeds=hidden.unsqueeze(0), use_cache=False)
        logits: Tensor = output.logits[0]
        return logits.float()


def split(causal: Any, vocab_size: int, device: torch.device) -> SplitModel:
    """Run `causal` once over a few tokens and split it. Raises Refusal."""
    recorder = Recorder(device)
    with handled_by(recorder):
        path, states, logits = _run_watched(causal, torch.arange(NUM_PROBE_TOKENS, device=device))
    shared_shape(recorder.layers)
    if logits.shape[-1] != vocab_size:
        raise Refusal(f"it has {logits.shape[-1]} logits for a vocabulary of {vocab_size}")
    base = causal.get_submodule(path)
    if "position_ids" not in inspect.signature(base.forward).parameters:
        raise Refusal("it takes no positions: tokens of several sequences cannot share a batch")
    return SplitModel(
        causal=causal,
        base=base,
        head=_with_submodule(causal, path, _PassThrough(type(states))),
        layers=tuple(recorder.layers),
        hidden_size=states.last_hidden_state.shape[-1],
    )


def _run_watched(causal: Any, token_ids: Tensor) -> tuple[str, Any, Tensor]:
    """Return the path and the output of the first half, and the logits."""
    seen: list[tuple[str, Any]] = []
    handles = [
        module.register_forward_hook(_note_states(path, seen))
        for path, module in causal.named_modules()
        if path
    ]
    try:
        output = causal(
            input_ids=token_ids.unsqueeze(0),
            # Without a mask some versions infer several sequences from the positions.
            attention_mask=torch.ones_like(token_ids).unsqueeze(0),
            position_ids=torch.arange(len(token_ids), device=token_ids.device).unsqueeze(0),
            use_cache=False,
        )
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        raise Refusal("none of its modules returns hidden states")
    # Nested modules end first, so the last one is the outermost.
    path, states = seen[-1]
    return path, states, output.logits


def _note_states(path: str, seen: list[tuple[str, Any]]) -> Callable[[Any, Any, Any], None]:
    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(getattr(output, "last_hidden_state", None), Tensor):
            seen.append((path, output))

    return hook


class _PassThrough(nn.Module):
    """Returns its input embeddings as hidden states, in an output of class `output_class`."""

    def __init__(self, output_class: Callable[..., Any]) -> None:
        super().__init__()
        self._output_class = output_class

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> Any:
        """Return an output of transformers around `inputs_embeds`."""
        return self._output_class(last_hidden_state=inputs_embeds)


def _with_submodule(module: nn.Module, path: str, replacement: nn.Module) -> nn.Module:
    """Return a copy of `module` with the same weights, and the submodule at `path` replaced."""
    name, _, rest = path.partition(".")
    inner = module.get_submodule(name)
    exchanged = copy.copy(module)
    exchanged._modules = {
        **module._modules,
        name: _with_submodule(inner, rest, replacement) if rest else replacement,
    }
    return exchanged
