"""Reads from the files of a model how it pools, its classes, and whether it generates."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from pagewire_shared.errors import InvalidRequestError, StartupError
from pagewire_shared.sampling.pooling import PoolingKind, PoolingParams

Activation = Literal["sigmoid", "softmax", "identity"]

_ENCODERS: Final = ("Bert", "Roberta", "XLMRoberta", "ModernBert")
_DECODERS: Final = ("Llama", "Mistral", "Qwen2", "Qwen3")
"""Decoders that run without logits, too. Names such as GPT2LMHeadModel say nothing."""
_CLASSIFIER: Final = "ForSequenceClassification"
_BARE: Final = "Model"
_MODES: Final[Mapping[str, PoolingKind]] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_NAMED_MODES: Final[Mapping[str, PoolingKind]] = {
    "cls": "cls",
    "mean": "mean",
    "lasttoken": "last",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTasks:
    """Abilities of one model.

    Attributes:
        is_encoder: Whether every token attends to all others.
        generates: Whether it has logits.
        pooling, is_normalized: How a vector is made, where a request leaves it open.
        labels: Names of its classes; empty without a classification head.
        activation: Turns class scores into probabilities.
    """

    is_encoder: bool = False
    generates: bool = True
    pooling: PoolingKind = "last"
    is_normalized: bool = True
    labels: tuple[str, ...] = ()
    activation: Activation = "identity"

    def resolved(self, pooling: PoolingParams) -> PoolingParams:
        """Return `pooling` with its open fields filled."""
        kind = pooling.pooling or self.pooling
        normalize = self.is_normalized if pooling.normalize is None else pooling.normalize
        return replace(pooling, pooling=kind, normalize=normalize and kind != "scores")

    def check(self, name: str, pooling: PoolingParams | None) -> None:
        """Raise InvalidRequestError naming model for a request that the model cannot serve.

        Args:
            name: Of the model, for the message.
            pooling: None for a request that generates.
        """
        if pooling is None:
            if self.generates:
                return
            kind = "an encoder" if self.is_encoder else "a model without logits"
            serves = "scores and classes" if len(self.labels) == 1 else "classes"
            serves = serves if self.labels else "embeddings and scores"
            text = f"{name} is {kind}: it serves {serves}, and generates nothing"
        elif pooling.kind == "scores" and not self.labels:
            text = f"{name} has no classification head: it serves no classes"
        elif pooling.kind in ("tokens", "cls") and not self.is_encoder:
            raise InvalidRequestError(
                f"pooling {pooling.kind!r} is for encoders, which {name} is not", field="pooling"
            )
        else:
            return
        raise InvalidRequestError(text, field="model")


GENERATES: Final = ModelTasks()


def read_tasks(folder: Path, config: Mapping[str, Any]) -> ModelTasks:
    """Return the abilities of the model in `folder`. Raises StartupError naming the file at fault.

    Args:
        folder: May hold modules.json, in the form of sentence-transformers.
        config: The content of config.json.
    """
    names = [name for name in config.get("architectures") or [] if isinstance(name, str)]
    name = names[0] if names else ""
    stem = name.removesuffix(_CLASSIFIER).removesuffix(_BARE)
    is_encoder, is_classifier = stem in _ENCODERS, name.endswith(_CLASSIFIER)
    is_bare = stem in _DECODERS and name.endswith(_BARE)
    labels = _labels(config) if is_classifier else ()
    tasks = ModelTasks(
        is_encoder=is_encoder,
        generates=not (is_encoder or is_classifier or is_bare),
        pooling="cls" if is_encoder else "last",
        labels=labels,
        activation=_activation(config, len(labels)),
    )
    modules = _json(folder / "modules.json")
    return tasks if modules is None else _with_modules(tasks, folder, modules)


def _with_modules(tasks: ModelTasks, folder: Path, modules: Any) -> ModelTasks:
    """Return `tasks` with the pooling that the modules of sentence-transformers name."""
    if not isinstance(modules, list) or not all(isinstance(item, dict) for item in modules):
        raise StartupError(f"{folder / 'modules.json'} holds no list of modules", field="model")
    kinds = {str(item.get("type", "")).rsplit(".", 1)[-1]: item for item in modules}
    unknown = sorted(set(kinds) - {"Transformer", "Pooling", "Normalize"})
    if unknown:
        raise StartupError(
            f"{folder / 'modules.json'}: the module {unknown[0]} is not supported", field="model"
        )
    tasks = replace(tasks, is_normalized="Normalize" in kinds)
    if "Pooling" not in kinds:
        return tasks
    path = folder / str(kinds["Pooling"].get("path", "1_Pooling")) / "config.json"
    return replace(tasks, pooling=_pooling_mode(path))


def _pooling_mode(path: Path) -> PoolingKind:
    settings = _json(path)
    if not isinstance(settings, dict):
        raise StartupError(f"{path} is missing or holds no JSON object", field="model")
    named = str(settings.get("pooling_mode"))
    if named in _NAMED_MODES:
        return _NAMED_MODES[named]
    chosen = [key for key, value in settings.items() if value is True and "pooling_mode" in key]
    if len(chosen) != 1 or chosen[0] not in _MODES:
        shown = ", ".join(chosen) or named
        raise StartupError(
            f"{path}: pooling {shown} is not supported, only one of {', '.join(_MODES)}",
            field="model",
        )
    return _MODES[chosen[0]]


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    names = config.get("id2label")
    if isinstance(names, dict) and names:
        return tuple(str(names.get(str(index), f"LABEL_{index}")) for index in range(len(names)))
    number = config.get("num_labels", 2)
    return tuple(f"LABEL_{index}" for index in range(number if isinstance(number, int) else 2))


def _activation(config: Mapping[str, Any], num_labels: int) -> Activation:
    """Return the function that sentence-transformers' field names, else transformers' own."""
    if not num_labels:
        return "identity"
    settings = config.get("sentence_transformers")
    named = settings.get("activation_fn") if isinstance(settings, dict) else None
    named = named or config.get("sbert_ce_default_activation_function")
    if named is not None:
        known: dict[str, Activation] = {"Sigmoid": "sigmoid", "Identity": "identity"}
        kind = str(named).rsplit(".", 1)[-1]
        if kind not in known:
            raise StartupError(f"config.json: activation {named!r} is not supported", field="model")
        return known[kind]
    kinds: dict[str, Activation] = {
        "regression": "identity",
        "multi_label_classification": "sigmoid",
        "single_label_classification": "softmax",
    }
    default: Activation = "sigmoid" if num_labels == 1 else "softmax"
    return kinds.get(str(config.get("problem_type")), default)


def _json(path: Path) -> Any:
    """Return the content of a JSON file; None when the file is missing. Raises StartupError."""
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise StartupError(f"{path} is no JSON: {error}", field="model") from error
