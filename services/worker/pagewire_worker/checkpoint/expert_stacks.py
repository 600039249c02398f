"""Finds the tensors of single experts in tensors that hold those of all experts of a layer.

Layout: GptOssExperts of transformers (models/gpt_oss), where rows of gates and of the values that
they multiply alternate, and its MXFP4 form (integrations/mxfp4.py).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.tensor_names import StoredPlace

_STACK: Final = re.compile(r"(.+\.experts)\.(gate_up_proj|down_proj)(|_bias|_blocks|_scales)")

_PARTS: Final[Mapping[str, Mapping[str, slice]]] = {
    "gate_up_proj": {"gate_proj": slice(0, None, 2), "up_proj": slice(1, None, 2)},
    "down_proj": {"down_proj": slice(None)},
}
"""Matrices of an expert, and their outputs in the stored one."""

_ENDS: Final[Mapping[str, tuple[str, int]]] = {
    "": ("weight", 3),
    "_bias": ("bias", 2),
    "_blocks": ("blocks", 4),
    "_scales": ("scales", 3),
}
"""Ends of the names of stored tensors: those of an expert's, and the dimensions of the stored."""


@dataclass(frozen=True, slots=True)
class ExpertStacks:
    """Names of the tensors of experts: NAME.experts.NUMBER.gate_proj.weight, and so on."""

    num_experts: int

    def places(self, folder: Path, stored: Collection[str]) -> dict[str, StoredPlace]:
        """Return where each tensor lies; all tensors that are no stack keep their names.

        Args:
            folder: Of the checkpoint, for messages.
        """
        found: dict[str, StoredPlace] = {}
        for name in stored:
            match = _STACK.fullmatch(name)
            found |= (
                {name: StoredPlace(name)} if match is None else dict(self._experts(folder, match))
            )
        return found

    def _experts(self, folder: Path, match: re.Match[str]) -> Iterator[tuple[str, StoredPlace]]:
        prefix, matrix, stored_end = match.groups()
        end, num_dimensions = _ENDS[stored_end]
        for number in range(self.num_experts):
            for part, outputs in _PARTS[matrix].items():
                cut = partial(
                    _cut,
                    where=f"{folder}: the tensor {match.string}",
                    whole=(self.num_experts, num_dimensions),
                    number=number,
                    outputs=outputs,
                    is_turned=end == "weight",
                )
                yield f"{prefix}.{number}.{part}.{end}", StoredPlace(match.string, cut)


def _cut(
    tensor: Tensor,
    *,
    where: str,
    whole: tuple[int, int],
    number: int,
    outputs: slice,
    is_turned: bool,
) -> Tensor:
    """Return what belongs to expert `number`, outputs first.

    Args:
        where: Names the tensor, for messages.
        whole: Experts and dimensions that the tensor must have.
        is_turned: Whether inputs come before outputs.
    """
    if (tensor.shape[0], tensor.ndim) != whole:
        raise StartupError(
            f"{where} has shape {list(tensor.shape)}, config.json asks for {whole[0]} experts in "
            f"{whole[1]} dimensions",
            field="model",
        )
    one = tensor[number]
    return (one.transpose(0, 1) if is_turned else one)[outputs]
