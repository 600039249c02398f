"""Resolves the settings of a replica: the model and the device fill the open ones."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_files import ModelFiles, find_files, override_bytes
from pagewire_shared.model_files.config import check_context
from pagewire_shared.model_files.folder import check_place, check_weights
from pagewire_shared.weights.version import WeightsSource
from pagewire_worker.backend.backend import DecodeBounds
from pagewire_worker.backend.source import ModelSource, ModelSummary
from pagewire_worker.checkpoint.dtypes import pick_dtype
from pagewire_worker.checkpoint.load_format import weights_fingerprint
from pagewire_worker.config import CPU_NUM_SEQS, FITTED_LEN, WorkerConfig
from pagewire_worker.cuda.defaults import step_defaults
from pagewire_worker.loading.cache_type import resolve_cache_dtype
from pagewire_worker.loading.source_selection import choose_source

ENCODER_TOKENS = 2048
"""Tokens of a step of an encoder on a CPU: no stream waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaShape:
    """Settings of a replica after the model and the device have filled the open ones."""

    files: ModelFiles
    source: ModelSource
    wait_for_fingerprint: Callable[[], bytes]
    model: ModelSummary
    device: torch.device
    dtype: torch.dtype
    cache_dtype: torch.dtype
    max_num_seqs: int
    max_num_batched_tokens: int | None
    max_model_len: int
    is_len_fitted: bool = False
    """A cache that is too small for max_model_len shortens the sequences instead of failing."""

    @property
    def fingerprint(self) -> bytes:
        """Fingerprint of the weights, 32 bytes; waits until all are hashed, beside loading.

        Raises StartupError if they cannot be read.
        """
        return self.wait_for_fingerprint()

    @property
    def bounds(self) -> DecodeBounds:
        """Upper bounds of decodes."""
        return DecodeBounds(self.max_num_seqs, self.max_model_len)


def config_of(config: WorkerConfig, source: WeightsSource) -> WorkerConfig:
    """Return the settings with the weights of a source; `config` are those of the start.

    Name and tokenizer stay: frontends know them.
    """
    if not source.path:
        return config
    return replace(
        config,
        model=source.path,
        revision="",
        served_model_name=config.served_model_name or config.model,
        tokenizer=config.tokenizer or config.model,
        tokenizer_revision=config.tokenizer_revision if config.tokenizer else config.revision,
    )


def resolve_shape(config: WorkerConfig, *, is_hashed: bool = True) -> ReplicaShape:
    """Understand the checkpoint and the device. Raises StartupError naming the setting.

    Args:
        is_hashed: Whether the weights are hashed; a rank whose weights others tell needs no hash.
    """
    files = find_files(config, config.model, has_weights=True)
    folder = files.folder
    if config.load_format == "auto":
        check_place(folder, config.model)
        check_weights(folder, config.model)
    source = choose_source(folder, config.model_impl, config.load_format, files.overrides)
    model = source.summary
    device = _pick_device(config.device)
    longest = model.max_positions
    is_len_fitted = config.max_model_len == FITTED_LEN
    max_model_len = longest if is_len_fitted else config.max_model_len or longest
    if max_model_len is None:
        raise StartupError(
            "--max-model-len is needed: config.json does not say how long a context may be",
            field="max_model_len",
        )
    check_context(max_model_len, longest)
    num_seqs, num_tokens = _default_step(device)
    if model.is_encoder:
        num_tokens = _encoder_tokens(config, num_tokens, max_model_len)
    dtype = pick_dtype(config.dtype, model.dtype)
    return ReplicaShape(
        files=files,
        source=source,
        wait_for_fingerprint=_fingerprint(config, files, device, dtype) if is_hashed else bytes,
        model=model,
        device=device,
        dtype=dtype,
        cache_dtype=resolve_cache_dtype(config, model, device, dtype),
        max_num_seqs=config.max_num_seqs or num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens or num_tokens,
        max_model_len=max_model_len,
        is_len_fitted=is_len_fitted,
    )


def hashed_again(config: WorkerConfig, shape: ReplicaShape) -> ReplicaShape:
    """Return `shape` with the fingerprint of what its files hold now."""
    fingerprint = _fingerprint(config, shape.files, shape.device, shape.dtype)
    return replace(shape, wait_for_fingerprint=fingerprint)


def _fingerprint(
    config: WorkerConfig, files: ModelFiles, device: torch.device, dtype: torch.dtype
) -> Callable[[], bytes]:
    overrides = override_bytes(files.overrides)
    return weights_fingerprint(
        files.folder, config.load_format, config.seed, device, dtype, overrides
    )


def _default_step(device: torch.device) -> tuple[int, int | None]:
    """Return the most sequences and tokens of a step on `device`; on a CPU tokens are measured."""
    if device.type == "cpu":
        return CPU_NUM_SEQS, None
    step = step_defaults(torch.cuda.get_device_properties(device).total_memory)
    return step.num_seqs, step.num_tokens


def _encoder_tokens(config: WorkerConfig, default: int | None, max_model_len: int) -> int:
    """Return the most tokens of a step of an encoder, which computes prompts whole."""
    asked = config.max_num_batched_tokens
    if asked is not None and asked < max_model_len:
        raise StartupError(
            f"--max-num-batched-tokens: an encoder computes a prompt in one step, so it must be at "
            f"least the longest prompt, {max_model_len}; raise it, or lower --max-model-len",
            field="max_num_batched_tokens",
        )
    return asked or max(default or ENCODER_TOKENS, max_model_len)


def _pick_device(name: str) -> torch.device:
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise StartupError("--device: no CUDA device is available here", field="device")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and has_cuda) else "cpu")
