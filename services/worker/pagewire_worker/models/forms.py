"""Forms in which a decoder is published: with logits, without, or with a classification head."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor

from pagewire_worker.backend.head import ClassificationHead, linear_step, num_labels_of
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.tensor_names import TensorNames
from pagewire_worker.checkpoint.weights import Shape, WeightReader

LOGITS: Final = "ForCausalLM"
CLASSES: Final = "ForSequenceClassification"
BARE: Final = "Model"
_PREFIX: Final = "model."


@dataclass(frozen=True, slots=True)
class CheckpointForm:
    """What a checkpoint holds besides the layers of its decoder.

    Attributes:
        architecture: Name in config.json.
        family: Name of the form with logits.
        num_labels: Of its classification head; 0 for none.
        names: Of the tensors of a text model beside other parts; None where it stands alone.
    """

    architecture: str
    family: str
    num_labels: int = 0
    names: TensorNames | None = None

    @property
    def has_logits(self) -> bool:
        """Whether it can generate."""
        return self.architecture == self.family or self.names is not None

    def decoder_weights(self, weights: WeightReader) -> WeightReader:
        """Return the tensors under the names that they have beside logits."""
        return weights if self.has_logits or self.num_labels else WithoutPrefix(weights)

    def load_head(self, weights: WeightReader, hidden_size: int) -> ClassificationHead | None:
        """Return the classification head, if there is one. Raises StartupError."""
        if not self.num_labels:
            return None
        weight = weights.take("score.weight", (self.num_labels, hidden_size))
        return ClassificationHead("last", self.num_labels, [linear_step(weight, None)])


def form_of(data: Mapping[str, Any], families: Sequence[str]) -> CheckpointForm | None:
    """Return the form of the first architecture in config.json that is of one of `families`.

    Args:
        families: Names of the forms with logits.
    """
    for name in data.get("architectures") or []:
        for family in families:
            stem = family.removesuffix(LOGITS)
            if name in (family, stem + BARE):
                return CheckpointForm(name, family)
            if name == stem + CLASSES:
                return CheckpointForm(name, family, num_labels_of(data))
    return None


class WithoutPrefix:
    """A WeightReader for checkpoints that leave out "model." before names."""

    def __init__(self, weights: WeightReader) -> None:
        self._weights = weights

    def take(self, name: str, shape: Shape) -> Tensor:
        """Return one tensor."""
        return self._weights.take(_bare(name), shape)

    def take_stacked(self, parts: Sequence[tuple[str, Shape]]) -> Tensor:
        """Return tensors stacked along their first dimension."""
        return self._weights.take_stacked([(_bare(name), shape) for name, shape in parts])

    def borrow(self, name: str, shape: Shape) -> AbstractContextManager[Tensor]:
        """Yield one tensor in its stored type."""
        return self._weights.borrow(_bare(name), shape)

    def borrow_matrix(
        self, name: str, shape: Shape
    ) -> AbstractContextManager[CodedMatrix | Tensor]:
        """Yield one tensor, or codes and scales where the matrix has them."""
        return self._weights.borrow_matrix(_bare(name), shape)

    def ignore(self, name: str) -> None:
        """Accept that `name` may be stored."""
        self._weights.ignore(_bare(name))

    def finish(self) -> None:
        """Release the files."""
        self._weights.finish()


def _bare(name: str) -> str:
    return name.removeprefix(_PREFIX)
