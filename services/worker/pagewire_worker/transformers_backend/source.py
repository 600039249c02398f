"""Loads all architectures without a native decoder: transformers runs them over our KV cache.

Reads safetensors only, from the folder only, and never runs code of a checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagewire_shared.errors import StartupError
from pagewire_worker.attention.registry import make_attention
from pagewire_worker.backend.attention import AttentionBackend, AttentionKind
from pagewire_worker.backend.backend import ModelBackend
from pagewire_worker.backend.source import (
    LoadedReplicaModel,
    LoadSettings,
    ModelSummary,
    Uncaptured,
)
from pagewire_worker.checkpoint.dtypes import cache_name
from pagewire_worker.checkpoint.requested import IGNORED_SUFFIXES
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_watch import LayerCalls, LayerWatch
from pagewire_worker.transformers_backend.backend import TransformersBackend
from pagewire_worker.transformers_backend.check import BLOCK_SIZE, check_against_plain
from pagewire_worker.transformers_backend.config_checks import (
    check_class,
    check_context,
    read_config,
)
from pagewire_worker.transformers_backend.interface import NAME, register
from pagewire_worker.transformers_backend.model import SplitModel, split
from pagewire_worker.transformers_backend.refusal import one_sentence


def transformers_version() -> str:
    """Return the version of transformers."""
    import transformers

    return str(transformers.__version__)


@dataclass(frozen=True, slots=True)
class TransformersModel(Uncaptured):
    """A model of transformers with its weights, examined and checked."""

    model: SplitModel
    attentions: Mapping[AttentionKind, AttentionBackend]

    @property
    def cache_shape(self) -> CacheShape:
        """Shape of the cache per position."""
        return self.model.cache_shape

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the model over `kv_cache`."""
        return TransformersBackend(
            model=self.model,
            kv_cache=kv_cache,
            attentions=self.attentions,
            version=transformers_version(),
            on_layer=on_layer,
        )


@dataclass(frozen=True, slots=True)
class TransformersSource:
    """A checkpoint that transformers has a causal language model for."""

    folder: Path
    config: Any
    summary: ModelSummary

    @classmethod
    def read(
        cls, folder: Path, data: Mapping[str, Any], *, is_changed: bool = False
    ) -> "TransformersSource":
        """Return the source in `folder`.

        Args:
            data: Content of its config.json.
            is_changed: Values of `data` differ from the file.

        Raises:
            StartupError: Transformers does not know the model, or it cannot be served.
        """
        architecture = str((data.get("architectures") or ["none"])[0])
        with one_sentence(architecture):
            config = read_config(folder, data, is_changed=is_changed)
            check_class(config, architecture)
            text = config.get_text_config()
            dtype = getattr(text, "dtype", None) or getattr(config, "dtype", None)
            return cls(
                folder,
                config,
                ModelSummary(
                    architecture=architecture,
                    vocab_size=int(text.vocab_size),
                    max_positions=getattr(text, "max_position_embeddings", None),
                    dtype=None if dtype is None else str(dtype).removeprefix("torch."),
                ),
            )

    def load(self, settings: LoadSettings) -> LoadedReplicaModel:
        """Read the weights, examine the model and check it. Raises StartupError."""
        if settings.cpu_backend == "fused":
            raise StartupError(
                "--cpu-backend: fused does not do here: transformers computes this model",
                field="cpu_backend",
            )
        with one_sentence(self.summary.architecture):
            if settings.quantization != "none":
                raise StartupError(
                    f"--quantization: {settings.quantization} is for models of our own decoder",
                    field="quantization",
                )
            if settings.cache_dtype not in (None, settings.dtype):
                name = cache_name(settings.cache_dtype)
                raise StartupError(
                    f"--kv-cache-dtype: {name} is for models of our own decoder",
                    field="kv_cache_dtype",
                )
            if settings.adapters is not None:
                raise StartupError(
                    "--enable-lora: adapters are for models of our own decoder",
                    field="enable_lora",
                )
            check_context(self.config, settings.max_model_len)
            settings.on_progress(0.0)
            causal = self._load_weights(settings)
            settings.on_progress(0.9)
            model = split(causal, self.summary.vocab_size, settings.device)
            self._check(model, settings)
            settings.on_progress(1.0)
            return TransformersModel(model, _attentions(model, settings, settings.block_size))

    def _load_weights(self, settings: LoadSettings) -> Any:
        import transformers

        register()
        library: Any = transformers  # annotated in parts
        causal, info = library.AutoModelForCausalLM.from_pretrained(
            self.folder,
            config=self.config,
            dtype=settings.dtype,
            attn_implementation=NAME,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            # Not ignored: wrong shapes are in `info`, and reported below.
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
        self._check_tensors(info)
        return causal.eval().requires_grad_(False).to(settings.device)

    def _check_tensors(self, info: Mapping[str, Any]) -> None:
        """Raise StartupError for the first tensor that is missing, of another shape or unknown."""
        faults = [f"lacks the tensor {name}" for name in sorted(info["missing_keys"])]
        faults += [
            f"holds the tensor {name} with shape {list(stored)}, config.json asks for {list(asked)}"
            for name, stored, asked in sorted(info["mismatched_keys"])
        ]
        faults += [
            f"holds the tensor {name}, which its architecture does not have"
            for name in sorted(info["unexpected_keys"])
            if not name.endswith(IGNORED_SUFFIXES)
        ]
        faults += info["error_msgs"]
        if faults:
            more = f", and {len(faults) - 1} more faults" if len(faults) > 1 else ""
            raise StartupError(f"{self.folder} {faults[0]}{more}", field="model")

    def _check(self, model: SplitModel, settings: LoadSettings) -> None:
        attentions = _attentions(model, settings, BLOCK_SIZE)
        check_against_plain(
            model,
            lambda cache: TransformersModel(model, attentions).backend(
                cache, LayerCalls(lambda: None)
            ),
            settings.max_model_len,
            self.summary.vocab_size,
            settings.device,
            settings.dtype,
        )


def _attentions(
    model: SplitModel, settings: LoadSettings, block_size: int
) -> dict[AttentionKind, AttentionBackend]:
    """Return one implementation of attention for each kind of layer."""
    return {
        kind: make_attention(
            settings.attention_backend, settings.device, settings.dtype, block_size, kind
        )
        for kind in dict.fromkeys(layer.kind for layer in model.layers)
    }
