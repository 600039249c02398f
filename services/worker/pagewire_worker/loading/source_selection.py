"""Selects how a checkpoint runs: as an encoder, in the native decoder if it supports it, else in
transformers."""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_files import overridden
from pagewire_shared.model_files.config import read_config, refuse_unsupported
from pagewire_shared.model_files.quantization import cache_scheme
from pagewire_worker.backend.source import ModelSource
from pagewire_worker.encoders.families import encoder_spec
from pagewire_worker.families.fields import UnsupportedModelError
from pagewire_worker.loading.encoder_source import EncoderSource
from pagewire_worker.loading.native_source import NativeSource
from pagewire_worker.models.registry import native_form, native_plan

NO_OVERRIDES: Final[Mapping[str, Any]] = MappingProxyType({})

_logger = logging.getLogger(__name__)


def choose_source(
    folder: Path,
    model_impl: str,
    load_format: str = "auto",
    overrides: Mapping[str, Any] = NO_OVERRIDES,
) -> ModelSource:
    """Return how the checkpoint in `folder` is run, and log which way and why.

    Args:
        model_impl: "native" or "transformers" for that one only; "auto" for the native decoder
            where it computes the model, and transformers otherwise.
        load_format: Where weights are to come from; transformers takes them from the checkpoint.
        overrides: Values in place of those of config.json.

    Raises:
        StartupError: The checkpoint is broken, or no way that is allowed can run it.
    """
    data = overridden(read_config(folder), overrides)
    refuse_unsupported(data)
    encoder = encoder_spec(data)
    if encoder is not None:
        if model_impl == "transformers":
            raise StartupError(
                f"--model-impl: transformers is not for encoders such as {encoder.architecture}",
                field="model_impl",
            )
        _logger.info("%s runs natively, as an encoder", encoder.architecture)
        return EncoderSource(folder, encoder)
    reason = "--model-impl says so"
    if model_impl != "transformers":
        try:
            native = NativeSource(folder, native_plan(data), native_form(data), cache_scheme(data))
        except UnsupportedModelError as error:
            if model_impl == "native":
                raise
            reason = f"the native decoder does not take it ({error.message})"
        else:
            _logger.info("%s runs natively", native.summary.architecture)
            return native
    if load_format != "auto":
        raise StartupError(
            f"--load-format: {load_format} is for models of our own decoder: {reason}",
            field="load_format",
        )
    # Takes seconds to import, and workers with a native model never need it.
    from pagewire_worker.transformers_backend.source import TransformersSource, transformers_version

    source = TransformersSource.read(folder, data, is_changed=bool(overrides))
    _logger.info(
        "%s runs through transformers %s: %s",
        source.summary.architecture,
        transformers_version(),
        reason,
    )
    return source
