"""Finds from files alone why a deployment cannot start, before any process is started.

The roles check the same again. Here a fault costs a fraction of a second instead of seconds.
"""

import json
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pagewire.config import ServeConfig
from pagewire.models import ServedModel
from pagewire_frontend.config import REASONING_PARSERS, TOOL_CALL_PARSERS
from pagewire_shared.adapters.flag_values import parse_modules
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_files import overridden
from pagewire_shared.identity.model_folder import (
    DEFAULT_REVISION,
    cache_folder,
    find_snapshot,
    is_hub_id,
    is_offline,
    resolve_model,
)
from pagewire_shared.model_files.config import (
    check_context,
    context_of,
    read_config,
    refuse_unsupported,
)
from pagewire_shared.model_files.folder import check_tokenizer, check_weights
from pagewire_shared.model_files.template import template_text
from pagewire_shared.process.settings import flag_of
from pagewire_shared.process.sizes import format_size

_PACKAGES: Final = (
    *("fastapi", "llguidance", "prometheus_client", "redis"),
    *("safetensors", "tokenizers", "torch", "transformers"),
)
"""Packages that the four roles import, and that a bare installation lacks."""


def check_start(
    config: ServeConfig, models: Sequence[ServedModel], environ: Mapping[str, str] = os.environ
) -> None:
    """Raise StartupError, naming the flag, for a deployment that could not start."""
    _check_packages()
    _check_memory(config.kv_cache_memory)
    _check_adapters(config)
    names = [model.name for model in models]
    if not config.tool_parser_plugin:
        _check_parsers("tool_call_parser", config.tool_call_parser, TOOL_CALL_PARSERS, names)
    _check_parsers("reasoning_parser", config.reasoning_parser, REASONING_PARSERS, names)
    if config.chat_template:
        template_text(config.chat_template)
    if config.tokenizer and not Path(config.tokenizer).expanduser().is_dir():
        _check_hub_id("tokenizer", config.tokenizer)
    for model in models:
        is_elsewhere = bool(config.revision or config.download_dir)
        folder = None if is_elsewhere and not model.is_local else _folder_of(model, environ)
        if folder is not None:
            _check_model(config, folder, model.path)


def _check_packages() -> None:
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise StartupError(
            f"{', '.join(missing)} {are} not installed; pip install 'pagewire[all]' brings what all"
            " roles need"
        )


def _check_memory(kv_cache_memory: int | None) -> None:
    """Refuse more than the whole machine has; a worker compares with what is free."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if kv_cache_memory is not None and kv_cache_memory > total:
        raise StartupError(
            f"--kv-cache-memory: {format_size(kv_cache_memory)} asked for, but this machine has"
            f" {format_size(total)}",
            field="kv_cache_memory",
        )


def _check_adapters(config: ServeConfig) -> None:
    for name in ("lora_modules", "lora_dir", "lora_roots"):
        if getattr(config, name) and not config.enable_lora:
            raise StartupError(f"{flag_of(name)}: needs --enable-lora", field=name)
    for module in parse_modules(config.lora_modules):
        if not module.path.is_dir():
            raise StartupError(
                f"--lora-modules: {module.name}: there is no folder {module.path}",
                field="lora_modules",
            )


def _check_model(config: ServeConfig, folder: Path, shown: str) -> None:
    overrides = json.loads(config.hf_overrides) if config.hf_overrides else {}
    data = overridden(read_config(folder), overrides)
    try:
        refuse_unsupported(data)
    except StartupError as error:
        error.message = error.message.replace("--model: ", f"--model: {shown}: ", 1)
        raise
    if not (config.skip_tokenizer_init or config.tokenizer or config.tokenizer_revision):
        check_tokenizer(folder, shown)
    if config.load_format == "auto":
        check_weights(folder, shown)
    check_context(config.max_model_len, context_of(data))


def _check_hub_id(field: str, text: str) -> None:
    if not is_hub_id(text):
        raise StartupError(f"--{field}: there is no folder {text}", field=field)


def _folder_of(model: ServedModel, environ: Mapping[str, str]) -> Path | None:
    """Return the folder of a model that is on this machine, or None."""
    if model.is_local:
        return Path(model.path)
    if not is_hub_id(model.path):
        return None
    hub_id, _, revision = model.path.partition("@")
    if is_offline(environ):
        # Downloads nothing, and says what is missing.
        return resolve_model(model.path, environ, has_weights=True)
    cache = cache_folder(environ)
    return find_snapshot(cache, hub_id, revision or DEFAULT_REVISION, has_weights=True)


def _check_parsers(
    field: str, given: Sequence[str], known: Sequence[str], models: Sequence[str]
) -> None:
    flag = "--" + field.replace("_", "-")
    for text in given:
        model, equals, name = text.rpartition("=")
        if equals and model not in models:
            raise StartupError(f"{flag}: no model is called {model!r}", field=field)
        if name not in known:
            raise StartupError(f"{flag}: {name!r} is none of {', '.join(known)}", field=field)
