"""Loads encoders: config.json, weights, torch operations."""

import json
from dataclasses import dataclass
from pathlib import Path

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.backend import ModelBackend
from pagewire_worker.backend.head import ClassificationHead
from pagewire_worker.backend.source import (
    LoadedReplicaModel,
    LoadSettings,
    ModelSummary,
    Uncaptured,
)
from pagewire_worker.checkpoint.load_format import open_weights
from pagewire_worker.encoders.backend import BOOKKEEPING, EncoderBackend
from pagewire_worker.encoders.network import Encoder, load_encoder
from pagewire_worker.encoders.spec import EncoderSpec
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_watch import LayerWatch


@dataclass(frozen=True, slots=True)
class EncoderModel(Uncaptured):
    """An encoder with its weights, and its classification head if it has one."""

    encoder: Encoder
    classifier: ClassificationHead | None

    @property
    def cache_shape(self) -> CacheShape:
        """The shape of blocks without content."""
        return BOOKKEEPING

    @property
    def head(self) -> ClassificationHead | None:
        """Its classification head."""
        return self.classifier

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the encoder; nothing reads `kv_cache`."""
        return EncoderBackend(self.encoder, kv_cache, on_layer)


@dataclass(frozen=True, slots=True)
class EncoderSource:
    """A checkpoint that holds an encoder."""

    folder: Path
    spec: EncoderSpec

    @property
    def max_positions(self) -> int:
        """The longest prompt: as many tokens as the model has positions for, or fewer, where the
        file of sentence-transformers says so. Raises StartupError.
        """
        path = self.folder / "sentence_bert_config.json"
        if not path.is_file():
            return self.spec.max_positions
        try:
            length = json.loads(path.read_text()).get("max_seq_length")
        except (ValueError, AttributeError) as error:
            raise StartupError(f"{path} is no JSON object: {error}", field="model") from error
        if not isinstance(length, int) or length < 1:
            return self.spec.max_positions
        return min(length, self.spec.max_positions)

    @property
    def summary(self) -> ModelSummary:
        """Facts about the model."""
        return ModelSummary(
            architecture=self.spec.architecture,
            vocab_size=self.spec.vocab_size,
            max_positions=self.max_positions,
            dtype=self.spec.dtype,
            is_encoder=True,
        )

    def load(self, settings: LoadSettings) -> LoadedReplicaModel:
        """Read the weights. Raises StartupError naming the flag or tensor at fault."""
        for field, value, plain in (
            ("quantization", settings.quantization, ("none",)),
            ("attention_backend", settings.attention_backend, ("auto", "sdpa")),
            ("linear_backend", settings.linear_backend, ("auto", "torch")),
            ("cpu_backend", settings.cpu_backend, ("auto", "torch")),
        ):
            if value not in plain:
                flag = field.replace("_", "-")
                raise StartupError(
                    f"--{flag}: {value} is not for encoders such as {self.spec.architecture}",
                    field=field,
                )
        if settings.adapters is not None:
            raise StartupError(
                f"--enable-lora: encoders such as {self.spec.architecture} take no adapters",
                field="enable_lora",
            )
        reader = open_weights(self.folder, settings)
        encoder, head = load_encoder(self.spec, reader, settings.max_model_len, settings.device)
        reader.finish()
        return EncoderModel(encoder, head)
