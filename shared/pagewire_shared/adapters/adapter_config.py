"""Reads adapter_config.json of PEFT, and refuses by name every setting that would change the result
and is not computed here.

The fields are those of `LoraConfig` in peft/tuners/lora/config.py of PEFT 0.21.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.content_id import CONFIG_NAME
from pagewire_shared.adapters.json_object import parse_object

MAX_RANK: Final = 256
"""Largest rank of an adapter."""

MAX_CONFIG_BYTES: Final = 1 << 20
"""Most bytes of adapter_config.json."""

_MAX_NAMES: Final = 4096
_STACKS: Final = ("gate_up_proj", "down_proj")
_EMBEDDING, _OUTPUT = "embed_tokens", "lm_head"
# They leave the weights of the model alone; the others subtract from them.
_HARMLESS_STARTS: Final = (True, False, None, "gaussian", "eva", "orthogonal")
_READ: Final = frozenset(
    {
        *("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias"),
        *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
        *("fan_in_fan_out", "modules_to_save", "init_lora_weights", "target_parameters"),
        *("peft_version", "ensure_weight_tying"),
    }
)
# They matter for training, or describe the file.
_NOT_READ: Final = frozenset(
    {
        *("task_type", "base_model_name_or_path", "revision", "inference_mode", "lora_dropout"),
        *("auto_mapping", "megatron_core", "loftq_config", "eva_config"),
        *("corda_config", "lora_ga_config", "qalora_group_size", "runtime_config"),
        "ephemeral_gpu_offload",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """Settings of one adapter.

    Attributes:
        rank: Rank of the modules without a rank of their own.
        ranks: Ranks that single modules have in its place.
        alpha: Numerator of the factor.
        alphas: Ends of names of modules, with the numerator that they have in its place.
        is_rank_stabilized: Whether the factor has the root of the rank as denominator (rsLoRA).
        targets: Ends of names of the modules that have an adapter; None where a pattern selects
            them, and the tensors of the file decide.
        excluded: Ends of names of modules that have none all the same.
        layers: Layers that have an adapter; None for all.
        has_pattern: Whether patterns select modules, so that none can be missed.
        stacks: Ends of names of the parameters that hold all experts of a layer and have an
            adapter: gate_up_proj, down_proj.
        layer_stacks: Those of `stacks` that every layer with experts must have.
        peft_version: Major and minor number of the PEFT that wrote it; None where it is not given.
        ties_output: Whether the matrix for logits has the adapter of the embedding, too, where a
            model has one matrix for both (ensure_weight_tying). PEFT writes it for each.
    """

    rank: int
    ranks: frozenset[int]
    alpha: float
    alphas: Mapping[str, float]
    is_rank_stabilized: bool
    targets: tuple[str, ...] | None
    excluded: tuple[str, ...] = ()
    layers: frozenset[int] | None = None
    has_pattern: bool = False
    stacks: frozenset[str] = frozenset()
    layer_stacks: frozenset[str] = frozenset()
    peft_version: tuple[int, int] | None = None
    ties_output: bool = False

    @property
    def max_rank(self) -> int:
        """The largest rank of a module."""
        return max(self.rank, *self.ranks)

    def scaling(self, module: str, rank: int) -> float:
        """Return the factor of the product of a module of this rank."""
        alpha = next((a for end, a in self.alphas.items() if ends_with(module, end)), self.alpha)
        return alpha / (math.sqrt(rank) if self.is_rank_stabilized else rank)

    def expects(self, module: str, layer: int) -> bool:
        """Return whether a module of a layer must have an adapter."""
        if self.has_pattern or self.targets is None:
            return False
        if self.layers is not None and layer not in self.layers:
            return False
        return self._selects(module)

    def allows(self, module: str) -> bool:
        """Return whether a module may have an adapter."""
        is_tied = self.ties_output and ends_with(module, _OUTPUT)
        return self.targets is None or is_tied or self._selects(module)

    def _selects(self, module: str) -> bool:
        is_target = any(ends_with(module, end) for end in self.targets or ())
        return is_target and not any(ends_with(module, end) for end in self.excluded)


def ends_with(module: str, end: str) -> bool:
    """Return whether the dotted name `module` ends with the dotted name `end`."""
    return module == end or module.endswith(f".{end}")


def read_adapter_config(data: bytes, *, max_rank: int = MAX_RANK) -> AdapterConfig:
    """Return the settings in the content of adapter_config.json.

    Raises:
        AdapterError: The content is broken, a setting is not supported, or a rank is larger than
            `max_rank`; it names the setting.
    """
    fields = _parse(data)
    _refuse_other_kinds(fields)
    rank = _rank("r", fields.get("r", 8), max_rank)
    parameters = _parameters(fields)
    targets, has_pattern = _targets(fields.get("target_modules"), has_others=bool(parameters))
    excluded = fields.get("exclude_modules")
    is_excluded_by_pattern = isinstance(excluded, str)
    return AdapterConfig(
        rank=rank,
        ranks=frozenset(
            _rank("rank_pattern", value, max_rank)
            for value in _mapping("rank_pattern", fields).values()
        ),
        alpha=_number("lora_alpha", fields.get("lora_alpha", 8)),
        alphas=_alphas(_mapping("alpha_pattern", fields)),
        is_rank_stabilized=_flag("use_rslora", fields),
        targets=targets,
        excluded=() if is_excluded_by_pattern else _names("exclude_modules", excluded or []),
        layers=_layers(fields.get("layers_to_transform")),
        has_pattern=has_pattern or is_excluded_by_pattern or bool(fields.get("layers_pattern")),
        stacks=frozenset(name.rpartition(".")[2] for name in parameters),
        layer_stacks=frozenset(
            name.rpartition(".")[2]
            for name in parameters
            if not any(part.isdecimal() for part in name.split("."))
        ),
        peft_version=_version(fields.get("peft_version")),
        ties_output=_flag("ensure_weight_tying", fields)
        and any(ends_with(name, _EMBEDDING) for name in targets or ()),
    )


def _parse(data: bytes) -> dict[str, Any]:
    if len(data) > MAX_CONFIG_BYTES:
        raise AdapterError(f"{CONFIG_NAME} has more than {MAX_CONFIG_BYTES} bytes", CONFIG_NAME)
    return parse_object(data, CONFIG_NAME, CONFIG_NAME)


def _refuse_other_kinds(fields: Mapping[str, Any]) -> None:
    kind = fields.get("peft_type")
    if kind != "LORA":
        raise _fault("peft_type", f"{_shown(kind)} is not supported, only LORA")
    for name, value in fields.items():
        if name not in _READ and name not in _NOT_READ and _is_set(value):
            reason = "DoRA scales the whole matrix" if name == "use_dora" else "not supported"
            raise _fault(name, f"{_shown(value)}: {reason}")
    if fields.get("bias", "none") != "none":
        raise _fault("bias", f"{_shown(fields['bias'])} is not supported, only none")
    if _flag("fan_in_fan_out", fields):
        raise _fault("fan_in_fan_out", "transposed matrices are not supported")
    if fields.get("modules_to_save"):
        shown = _shown(fields["modules_to_save"])
        raise _fault("modules_to_save", f"{shown}: an adapter cannot replace whole modules")
    start = fields.get("init_lora_weights")
    if not any(start is one for one in _HARMLESS_STARTS[:3]) and start not in _HARMLESS_STARTS[3:]:
        raise _fault(
            "init_lora_weights",
            f"{_shown(start)} may change the weights of the model; convert the adapter with PEFT's"
            " path_initial_model_for_weight_conversion",
        )


def _parameters(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of target_parameters, which have to be those of stacked experts."""
    names = _names("target_parameters", fields.get("target_parameters") or [])
    for name in names:
        if name.rpartition(".")[2] not in _STACKS:
            raise _fault(
                "target_parameters",
                f"{_shown(name)}: of parameters, only experts.gate_up_proj and experts.down_proj "
                "may have adapters",
            )
    if names:
        for field in ("rank_pattern", "alpha_pattern"):
            for key in _mapping(field, fields):
                if any(word in key for word in ("experts", *_STACKS)):
                    raise _fault(field, f"{_shown(key)} is not supported for target_parameters")
    return names


def _version(value: object) -> tuple[int, int] | None:
    parts = value.split(".")[:2] if isinstance(value, str) else []
    if len(parts) != 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    return int(parts[0][:9]), int(parts[1][:9])


def _targets(value: object, *, has_others: bool) -> tuple[tuple[str, ...] | None, bool]:
    if has_others and not value:
        return (), False
    if isinstance(value, str) and value:
        # A pattern is not run: a bad one can take forever. The tensors of the file decide, also
        # for "all-linear".
        return None, True
    names = _names("target_modules", value)
    if not names:
        raise _fault("target_modules", "it names no module")
    return names, False


def _alphas(values: Mapping[str, Any]) -> dict[str, float]:
    result = {}
    for key, value in values.items():
        end = key.removeprefix("^").removesuffix("$").replace("\\.", ".")
        if not all(part.isidentifier() or part.isdecimal() for part in end.split(".")):
            raise _fault("alpha_pattern", f"{_shown(key)} is not the plain name of a module")
        result[end] = _number("alpha_pattern", value)
    return result


def _layers(value: object) -> frozenset[int] | None:
    if value is None or value == []:
        return None
    layers = set[int]()
    for one in value if isinstance(value, list) else [value]:
        if type(one) is not int or one < 0:
            raise _fault("layers_to_transform", f"{_shown(one)} is not the number of a layer")
        layers.add(one)
    return frozenset(layers)


def _rank(name: str, value: object, max_rank: int) -> int:
    if type(value) is not int or value < 1:
        raise _fault(name, f"{_shown(value)} is not a whole number of at least 1")
    if value > max_rank:
        raise _fault(name, f"rank {value} is more than {max_rank}")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _fault(name, f"{_shown(value)} is not a number")
    if not abs(value) < 1e6:
        raise _fault(name, f"{_shown(value)} is not a finite number of a usual size")
    return float(value)


def _flag(name: str, fields: Mapping[str, Any]) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise _fault(name, f"{_shown(value)} is neither true nor false")
    return bool(value)


def _mapping(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    value = fields.get(name) or {}
    if not isinstance(value, dict) or len(value) > _MAX_NAMES:
        raise _fault(name, f"{_shown(value)} is not an object of a usual size")
    return value


def _names(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MAX_NAMES:
        raise _fault(name, f"{_shown(value)} is neither a pattern nor a list of names")
    for one in value:
        if not isinstance(one, str) or not one:
            raise _fault(name, f"{_shown(one)} is not a name")
    return tuple(value)


def _is_set(value: object) -> bool:
    return value is not None and value is not False and value not in ("", [], {})


def _shown(value: object) -> str:
    return repr(value)[:80]


def _fault(name: str, text: str) -> AdapterError:
    return AdapterError(f"{CONFIG_NAME}: {name}: {text}", name)
