"""The models that this frontend serves: tokenizer, chat template, end-of-sequence ids, defaults and
limits. Fixed when the process starts; the schedulers report which of them run at the moment."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pagewire_frontend.access.api_keys import may_use_model
from pagewire_frontend.adapters.adapter_use import AdapterUse
from pagewire_frontend.adapters.registry import AdapterRegistry, NamedAdapter
from pagewire_frontend.message.formats import (
    NO_FORMATS,
    FormatChoice,
    MessageFormats,
    parse_formats,
)
from pagewire_frontend.models.chat_template import ChatTemplate, special_tokens
from pagewire_frontend.models.model_options import ModelOptions
from pagewire_frontend.models.no_tokenizer import NoTokenizer
from pagewire_frontend.models.tasks import GENERATES, ModelTasks, read_tasks
from pagewire_frontend.models.tokenizer import TextTokenizer, load_tokenizer
from pagewire_shared.errors import InvalidRequestError, ModelNotFoundError, StartupError
from pagewire_shared.identity.ids import tokenizer_fingerprint
from pagewire_shared.identity.model_files import ModelFiles, overridden
from pagewire_shared.identity.model_folder import is_hub_id, resolve_model
from pagewire_shared.model_files.folder import check_tokenizer
from pagewire_shared.model_files.text_model import text_settings
from pagewire_shared.sampling.params import MAX_LOGPROBS, SamplingParams

NO_OPTIONS: Final = ModelOptions()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Name and path of one `--model`."""

    name: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model as far as a frontend needs it.

    Attributes:
        chat_template: None when the model has none.
        eos_token_ids: Ids that end an answer.
        tokenizer_fingerprint: SHA-256 of tokenizer.json, 32 bytes.
        context_length: From its files; None when they have no entry.
        vocab_size: Ids of prompts are smaller than this.
        defaults: Sampling for fields that the client leaves out; max_tokens is the rest of the
            context.
        formats: Formats in which it writes tool calls and reasoning.
        aliases: Further names that clients may use.
        max_logprobs: Most log-probabilities of alternatives per token.
        tasks: What it can be asked for.
        adapter: The adapter that requests for it use; None for the model alone.
        folder: Where its files are.
    """

    name: str
    tokenizer: TextTokenizer
    chat_template: ChatTemplate | None
    eos_token_ids: tuple[int, ...]
    tokenizer_fingerprint: bytes
    context_length: int | None
    vocab_size: int
    defaults: SamplingParams
    formats: MessageFormats = NO_FORMATS
    aliases: tuple[str, ...] = ()
    max_logprobs: int = MAX_LOGPROBS
    tasks: ModelTasks = GENERATES
    adapter: AdapterUse | None = None
    folder: Path = Path()

    @property
    def shown_name(self) -> str:
        """The name in answers: that of the adapter, if there is one."""
        return self.name if self.adapter is None else self.adapter.name

    @property
    def has_text(self) -> bool:
        """Whether texts can be read and written: a tokenizer is loaded."""
        return not isinstance(self.tokenizer, NoTokenizer)


MAX_NAMED: Final = 8
"""Models that an error lists."""


class ModelRegistry:
    """All models by served name, and their adapters; `loaded_at` is in seconds since 1970."""

    def __init__(
        self, models: Sequence[LoadedModel], adapters: AdapterRegistry | None = None
    ) -> None:
        self._models = {model.name: model for model in models}
        self._by_name = {name: m for m in models for name in (m.name, *m.aliases)}
        names = [name for m in models for name in (m.name, *m.aliases)]
        served = [model.name for model in models]
        if adapters is None:
            adapters = AdapterRegistry(None, models=served, taken_names=names)
        self.adapters = adapters
        self.loaded_at = int(time.time())

    def __iter__(self) -> Iterator[LoadedModel]:
        return iter(self._models.values())

    def find(self, name: str | None) -> LoadedModel:
        """Return a model for the caller's request; without a name the only one.

        Raises:
            ModelNotFoundError: No model has this name, or the caller's API key may not use it.
            InvalidRequestError: No name, and there are several models.
        """
        if name is None:
            if len(self._models) > 1:
                raise InvalidRequestError("model is required: several are served", field="model")
            name = next(iter(self._models))
        adapter = self.adapters.find(name)
        if adapter is not None and may_use_model(name, None):
            return replace(self._models[adapter.base_model], adapter=adapter.use)
        model = self._by_name.get(name)
        if model is None or not may_use_model(name, model.name):
            usable = [one for one in self._models if may_use_model(one, one)]
            served = ", ".join(usable[:MAX_NAMED])
            more = ", ..." if len(usable) > MAX_NAMED else ""
            raise ModelNotFoundError(
                f"the model {name[:256]!r} does not exist; served: {served}{more}"
            )
        return model

    def base_of(self, adapter: NamedAdapter) -> LoadedModel:
        """Return the model of an adapter."""
        return self._models[adapter.base_model]

    def usable(self) -> list[tuple[LoadedModel, str]]:
        """Return the models that the caller's API key may use, with each of their names."""
        return [
            (model, name)
            for model in self._models.values()
            for name in (model.name, *model.aliases)
            if may_use_model(name, model.name)
        ]

    def usable_adapters(self) -> list[NamedAdapter]:
        """Return the adapters that the caller's API key may use."""
        return [one for one in self.adapters if may_use_model(one.name, None)]


def parse_specs(models: Sequence[str], served_names: Sequence[str]) -> list[ModelSpec]:
    """Return name and path for each `--model`: name=path, or a path named by `served_names` in
    turn, by its folder, or by its hub id. Raises StartupError."""
    spare_names = list(served_names)
    specs: list[ModelSpec] = []
    for text in models:
        name, equals, path = text.partition("=")
        if not equals:
            path = text
            if spare_names:
                name = spare_names.pop(0)
            elif is_hub_id(text) and not Path(text).is_dir():
                name = text
            else:
                name = Path(text).expanduser().resolve().name
        if not name or not path:
            raise StartupError(f"--model: {text!r} is neither name=path nor a path", field="model")
        specs.append(ModelSpec(name, path))
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        raise StartupError(f"--model: names must differ, got {', '.join(names)}", field="model")
    if not specs:
        raise StartupError("--model is required: name=path or a path", field="model")
    return specs


def load_model(
    spec: ModelSpec,
    choice: FormatChoice | None = None,
    options: ModelOptions = NO_OPTIONS,
    files: ModelFiles | None = None,
) -> LoadedModel:
    """Read a model's files. Raises StartupError naming the file at fault.

    Args:
        choice: Formats from flags; without, the chat template decides.
        options: Other choices from flags.
        files: Folders; None for those of the path.
    """
    files = files or ModelFiles.of_folder(resolve_model(spec.path, has_weights=False))
    folder = files.folder
    config = overridden(read_json(folder / "config.json", is_required=True), files.overrides)
    tokenizer_config = read_json(files.tokenizer_folder / "tokenizer_config.json")
    generation = read_json(folder / "generation_config.json")
    has_tokenizer = options.has_tokenizer
    if has_tokenizer:
        shown = spec.path if files.tokenizer_folder == folder else str(files.tokenizer_folder)
        check_tokenizer(files.tokenizer_folder, shown)
    tokenizer = load_tokenizer(files.tokenizer_folder) if has_tokenizer else NoTokenizer()
    template = options.template(files.tokenizer_folder, tokenizer_config)
    choice = parse_formats((), (), (), ()) if choice is None else choice
    source = template.source if template else None
    formats = choice.formats_of(spec.name, source, tokenizer.added_tokens)
    eos_token_ids = _eos_token_ids(config, generation, tokenizer_config, tokenizer)
    if formats.harmony is not None:
        # Not all generation_config.json of such models have both.
        eos_token_ids = tuple(dict.fromkeys([*eos_token_ids, *formats.harmony.stop_ids]))
    return LoadedModel(
        name=spec.name,
        tokenizer=tokenizer,
        chat_template=template,
        eos_token_ids=eos_token_ids,
        tokenizer_fingerprint=tokenizer_fingerprint(files.tokenizer_folder),
        context_length=context_length(config, tokenizer_config),
        vocab_size=vocab_size(config) or tokenizer.vocab_size,
        defaults=options.overridden(_defaults(options.generation(folder))),
        formats=formats,
        aliases=tuple(options.aliases.get(spec.name, ())),
        max_logprobs=options.max_logprobs,
        tasks=read_tasks(folder, config),
        folder=folder,
    )


def _eos_token_ids(
    config: Mapping[str, Any],
    generation: Mapping[str, Any],
    tokenizer_config: Mapping[str, Any],
    tokenizer: TextTokenizer,
) -> tuple[int, ...]:
    ids = as_ids(generation.get("eos_token_id"))
    ids = (
        ids
        or as_ids(config.get("eos_token_id"))
        or as_ids(text_settings(config).get("eos_token_id"))
    )
    token = special_tokens(tokenizer_config).get("eos_token")
    token_id = tokenizer.id_of(token) if token is not None else None
    if token_id is not None:
        ids.append(token_id)
    return tuple(dict.fromkeys(ids))


def _defaults(generation: Mapping[str, Any]) -> SamplingParams:
    """Return the sampling that the model's authors recommend: the fields that vLLM reads, too
    (ModelConfig.get_diff_sampling_param), but max_new_tokens. Raises StartupError.
    """
    names = ["repetition_penalty"]
    changes: dict[str, Any] = {}
    if generation.get("do_sample") is False:
        # Greedy, as in transformers. The file's other values are leftovers then, not advice.
        changes["temperature"] = 0.0
    else:
        names += ["temperature", "top_p", "top_k", "min_p"]
    changes |= {name: generation[name] for name in names if generation.get(name) is not None}
    try:
        return SamplingParams(max_tokens=None, **changes)
    except InvalidRequestError as error:
        raise StartupError(f"generation_config.json: {error.message}", field="model") from error


_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# A tokenizer_config.json without a limit has 1e30.
_LARGEST_CONTEXT = 2**31 - 1


def read_json(path: Path, *, is_required: bool = False) -> dict[str, Any]:
    """Return a JSON object; empty when the file is missing. Raises StartupError."""
    if not path.is_file():
        if is_required:
            raise StartupError(f"model {path.parent}: no {path.name}", field="model")
        return {}
    try:
        data = json.loads(path.read_text())
    except ValueError as error:
        raise StartupError(f"{path} is no JSON: {error}", field="model") from error
    if not isinstance(data, dict):
        raise StartupError(f"{path} holds no JSON object", field="model")
    return data


def context_length(config: Mapping[str, Any], tokenizer_config: Mapping[str, Any]) -> int | None:
    """Return the longest sequence in tokens that the model's files name, or None."""
    fields = text_settings(config)
    for key in _CONTEXT_KEYS:
        if isinstance(fields.get(key), int):
            return int(fields[key])
    limit = tokenizer_config.get("model_max_length")
    if isinstance(limit, int) and 0 < limit <= _LARGEST_CONTEXT:
        return limit
    return None


def vocab_size(config: Mapping[str, Any]) -> int | None:
    """Return the number of rows of the model's embedding, or None."""
    size = text_settings(config).get("vocab_size")
    return int(size) if isinstance(size, int) else None


def as_ids(value: Any) -> list[int]:
    """Return the ids of a JSON value that is an id, a list of ids or nothing."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool)]
