"""Finds the tensors of a plan among those of a checkpoint that holds more than its text model."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.text_model import is_of_tower, own_name

_MODEL: Final = "model."
_OUTPUT, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """Where a tensor lies.

    Attributes:
        stored: Name of the stored tensor.
        cut: Returns the tensor as a view of the stored one; None for all of it.
    """

    stored: str
    cut: Callable[[Tensor], Tensor] | None = None


class PlaceFinder(Protocol):
    """Finds the tensors of a plan among those of a checkpoint."""

    def places(self, folder: Path, stored: Collection[str]) -> Mapping[str, StoredPlace]:
        """Return where each tensor lies by its name in a plan. Raises StartupError."""
        ...


@dataclass(frozen=True, slots=True)
class TensorNames:
    """The names of a text model's tensors in a checkpoint; those of towers are never read.

    Attributes:
        may_share_output: Without a matrix of the logits, that of the embedding is taken.
    """

    may_share_output: bool = False

    def places(self, folder: Path, stored: Collection[str]) -> dict[str, StoredPlace]:
        """Return where each tensor lies by its name in a plan.

        Args:
            folder: Of the checkpoint, for messages.

        Raises:
            StartupError: There is no tensor of a text model, or two have one place.
        """
        found: dict[str, str] = {}
        for name in (one for one in stored if not is_of_tower(one)):
            own = own_name(name)
            if own in found:
                raise StartupError(
                    f"{folder} holds two tensors in one place: {found[own]} and {name}",
                    field="model",
                )
            found[own] = name
        if not any(name.startswith(_MODEL) for name in found):
            raise StartupError(
                f"{folder} holds no tensors of a text model (language_model.*, model.*), only "
                f"{', '.join(sorted(stored)[:3])}",
                field="model",
            )
        if self.may_share_output and _OUTPUT not in found and _EMBEDDING in found:
            found[_OUTPUT] = found[_EMBEDDING]
        return {own: StoredPlace(name) for own, name in found.items()}
