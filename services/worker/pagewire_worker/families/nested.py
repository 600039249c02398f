"""Reads the config.json of checkpoints whose text model is one of the families, beside towers for
images, audio or video. Only the text model is computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.text_model import text_settings
from pagewire_worker.checkpoint.tensor_names import TensorNames
from pagewire_worker.families.fields import Data

_TIED = "tie_word_embeddings"


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedFamily:
    """Where the text model of one architecture is.

    Attributes:
        architecture: Name in config.json.
        texts: Values of the text model's `model_type`, each with the architecture of its family.
            The first one holds where config.json has none.
        defaults: Values of fields that config.json may leave out.
    """

    architecture: str
    texts: Mapping[str, str]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def family(self, data: Data) -> str:
        """Return the architecture of the text model's family. Raises StartupError."""
        kind = self._text(data).get("model_type") or next(iter(self.texts))
        if kind not in self.texts:
            raise StartupError(
                f"config.json: text_config.model_type {kind!r} is not supported in "
                f"{self.architecture}, only {', '.join(self.texts)}",
                field="model",
            )
        return self.texts[kind]

    def text_data(self, data: Data) -> Data:
        """Return the fields of the text model, as its family reads them."""
        fields = {**self.defaults, **text_settings(data)}
        return {**fields, _TIED: False} if _ties_differ(self._text(data), data) else fields

    def tensor_names(self, data: Data) -> TensorNames:
        """Return the names of the text model's tensors in the checkpoint."""
        return TensorNames(may_share_output=_ties_differ(self._text(data), data))

    def _text(self, data: Data) -> Data:
        text = data.get("text_config")
        if text is None and data.get("model_type") in self.texts:
            # An older form: all fields are on the top level.
            return data
        if not isinstance(text, Mapping):
            problem = "is missing" if text is None else f"must be an object, got {text!r}"
            raise StartupError(f"config.json: text_config {problem}", field="model")
        return text


def _ties_differ(text: Data, data: Data) -> bool:
    """Return whether two values contradict each other; versions of transformers read either.

    Then the matrix of the logits is the stored one, and that of the embedding without any.
    """
    values = {bool(source[_TIED]) for source in (text, data) if source.get(_TIED) is not None}
    return len(values) > 1
