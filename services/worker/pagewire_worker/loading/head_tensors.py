"""Reads heads that draft, as they are published, with the parts of a target that they share.

Layouts: EAGLE and EAGLE-3 of https://github.com/SafeAILab/EAGLE, of SpecForge and of vLLM
(vllm/model_executor/models/llama_eagle.py and llama_eagle3.py).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.tensor_names import StoredPlace
from pagewire_worker.checkpoint.weights import SafetensorsReader
from pagewire_worker.families.fields import integer
from pagewire_worker.families.llama import LLAMA
from pagewire_worker.families.plan import BranchNorms, LayerSpec, ModelPlan
from pagewire_worker.layers.linear import Linear, LinearKind
from pagewire_worker.layers.rotary import RotaryTable
from pagewire_worker.models.decoder import DecoderLayer, load_layer, load_norm
from pagewire_worker.models.draft_head import DraftHead, MergedEntry, WideEntry
from pagewire_worker.models.linear_loader import LinearLoader
from pagewire_worker.speculation.settings import EAGLE3

NUM_TAPS: Final = 3
"""States of a token that EAGLE-3 reads."""
ARCHITECTURES: Final = (
    LLAMA.architecture,
    *(f"{LLAMA.architecture}{end}" for end in ("Eagle", "Eagle3")),
    *(f"{begin}{LLAMA.architecture}" for begin in ("Eagle", "Eagle3")),
)
NOT_COMPUTED: Final = (
    "norm_before_fc",
    "add_para_norm",
    "parallel_drafting",
    "quantization_config",
)
"""Fields of config.json that change what a head computes."""
_LAYER: Final = "model.layers.0."


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTarget:
    """What a head drafts for.

    Attributes:
        embedding: Reads its embedding, [vocab, hidden].
    """

    num_layers: int
    hidden_size: int
    vocab_size: int
    embedding: Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class HeadNames:
    """A PlaceFinder that gives the tensors of a head the names of a Llama of one layer."""

    def places(self, folder: Path, stored: Collection[str]) -> Mapping[str, StoredPlace]:
        """Return where each tensor lies by its name in a plan."""
        return {_plan_name(name): StoredPlace(name) for name in stored}


def _plan_name(stored: str) -> str:
    name = stored.removeprefix("model.")
    if name.startswith("midlayer."):
        return _LAYER + name.removeprefix("midlayer.")
    return f"model.{name}" if name.startswith(("layers.", "embed_tokens.", "norm.")) else name


def head_plan(data: Mapping[str, Any], method: str, target: HeadTarget) -> ModelPlan:
    """Return the plan of a head as that of a Llama of one layer.

    Raises:
        StartupError: The config.json is of no head, or of another target's, naming the field.
    """
    names = data.get("architectures") or []
    if not set(names) & set(ARCHITECTURES):
        raise _unfit(f"architectures {names}, {method} needs one of {', '.join(ARCHITECTURES)}")
    for name in NOT_COMPUTED:
        if data.get(name):
            raise _unfit(f"{name} is not supported here")
    plan = LLAMA.read({**data, "tie_word_embeddings": False})
    plan = replace(plan, architecture=LLAMA.architecture)
    size = "target_hidden_size" if "target_hidden_size" in data else "hidden_size"
    for name, wanted in (
        ("num_hidden_layers", 1),
        (size, target.hidden_size),
        ("vocab_size", target.vocab_size),
    ):
        if integer(data, name) != wanted:
            raise _unfit(f"{name} is {data[name]}, and the model asks for {wanted}")
    layer = plan.layers[0]
    if method == EAGLE3:
        qkv = replace(layer.attention.qkv, num_inputs=2 * plan.hidden_size)
        layer = replace(layer, attention=replace(layer.attention, qkv=qkv))
    else:
        layer = replace(layer, attention_norms=BranchNorms(None))
    return replace(plan, layers=(layer,))


def tapped_layers(data: Mapping[str, Any], method: str, num_layers: int) -> tuple[int, ...]:
    """Return the taps of a head; see StateTap. Raises StartupError naming the field.

    As in vLLM, numbers at the top of config.json are of the layers that the states come into; as
    in SGLang, those of `eagle_config` are of the layers that they come out of.
    """
    if method != EAGLE3:
        return (num_layers,)
    field, shift = "eagle_aux_hidden_state_layer_ids", 0
    layers: Any = data.get(field)
    nested = data.get("eagle_config")
    if layers is None and isinstance(nested, Mapping):
        layers, shift = nested.get(field), 1
    if layers is None:
        layers, shift = (2, num_layers // 2, num_layers - 3), 0
    is_list = isinstance(layers, Sequence) and all(type(one) is int for one in layers)
    if not is_list or len(layers) != NUM_TAPS:
        raise _unfit(f"{field} must be {NUM_TAPS} numbers, got {layers!r}")
    taps = tuple(int(one) + shift for one in layers)
    if not all(0 <= one < num_layers for one in taps):
        raise _unfit(f"{field}: states {list(taps)} of a model of {num_layers} layers")
    return taps


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLoader:
    """Reads the tensors of one head.

    Attributes:
        num_positions: Longest sequence.
    """

    data: Mapping[str, Any]
    plan: ModelPlan
    target: HeadTarget
    weights: SafetensorsReader
    kind: LinearKind
    dtype: torch.dtype
    num_positions: int

    def load(self, method: str, taps: tuple[int, ...]) -> DraftHead:
        """Return the head. Raises StartupError naming the tensor at fault."""
        head = self._wide(taps) if method == EAGLE3 else self._merged(taps)
        self.weights.finish()
        return head

    def _wide(self, taps: tuple[int, ...]) -> DraftHead:
        plan, layer = self.plan, self._layer(self.plan.layers[0])
        token_norm = layer.attention_branch.before
        assert token_norm is not None
        state_norm = replace(plan.norm, name=f"{_LAYER}hidden_norm")
        adds_normed = bool(self.data.get("norm_before_residual"))
        output, target_ids = self._output()
        return DraftHead(
            taps=taps,
            fuse=self._linear("fc", NUM_TAPS * self.target.hidden_size),
            embedding=self._embedding(),
            enter=WideEntry(token_norm, load_norm(state_norm, self.weights), adds_normed),
            layer=layer,
            norm=load_norm(plan.norm, self.weights),
            output=output,
            target_ids=target_ids,
        )

    def _merged(self, taps: tuple[int, ...]) -> DraftHead:
        enter = MergedEntry(self._linear("fc", 2 * self.plan.hidden_size), None, None)
        # Copies of the target's, and a norm that the layer does not have.
        for name in ("lm_head.weight", f"{_LAYER}input_layernorm.weight"):
            self.weights.ignore(name)
        return DraftHead(
            taps=taps,
            fuse=None,
            embedding=self._embedding(),
            enter=enter,
            layer=self._layer(self.plan.layers[0]),
        )

    def _layer(self, spec: LayerSpec) -> DecoderLayer:
        linears = LinearLoader(self.weights, self.kind, torch.device("cpu"), self.dtype)
        rope = spec.attention.rope
        assert rope is not None
        rotary = RotaryTable(rope, self.num_positions, torch.device("cpu"), self.dtype)
        return load_layer(self.plan, spec, self.weights, linears, rotary)

    def _linear(self, name: str, num_inputs: int) -> Linear:
        weight = self.weights.take(f"{name}.weight", (self.plan.hidden_size, num_inputs))
        has_bias = self.weights.has(f"{name}.bias")
        bias = self.weights.take(f"{name}.bias", (len(weight),)) if has_bias else None
        return self.kind.layer(weight, bias)

    def _embedding(self) -> Tensor:
        name = f"{self.plan.embedding}.weight"
        if self.weights.has(name):
            return self.weights.take(name, (self.plan.vocab_size, self.plan.hidden_size))
        if self.plan.hidden_size != self.target.hidden_size:
            raise _unfit(f"hidden_size is {self.plan.hidden_size}, and there is no embed_tokens")
        return self.target.embedding()

    def _output(self) -> tuple[Linear, Tensor | None]:
        """Return what makes the logits, and the tokens that these are of."""
        vocab_size = self.plan.vocab_size
        num_tokens = integer(self.data, "draft_vocab_size", vocab_size)
        shape = (num_tokens, self.plan.hidden_size)
        output = self.kind.output(self.weights.take("lm_head.weight", shape), None)
        self.weights.ignore("t2d")
        if num_tokens == vocab_size:
            self.weights.ignore("d2t")
            return output, None
        if not self.weights.has("d2t"):
            raise _unfit(f"draft_vocab_size is {num_tokens}, and there is no tensor d2t")
        with self.weights.stored("d2t") as stored:
            if stored.shape != (num_tokens,) or stored.is_floating_point():
                raise _unfit(f"the tensor d2t is no list of {num_tokens} whole numbers")
            # Stored is how much greater the number of the target's token is.
            target_ids = torch.arange(num_tokens) + stored.long()
        if not bool(((target_ids >= 0) & (target_ids < vocab_size)).all()):
            raise _unfit(f"the tensor d2t names tokens beyond the {vocab_size} of the model")
        return output, target_ids


def _unfit(reason: str) -> StartupError:
    return StartupError(f"config.json: {reason}")
