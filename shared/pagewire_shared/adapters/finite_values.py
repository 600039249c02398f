"""Finds values in the tensors of an adapter that are no finite numbers."""

from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import AdapterSummary
from pagewire_shared.adapters.content_id import WEIGHTS_NAME
from pagewire_shared.adapters.tensor_header import StoredTensor

_PIECE: Final = 1 << 20
# Of infinities and NaNs, and of nothing else, all bits of the exponent are set (IEEE 754).
_EXPONENTS: Final = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}


def check_finite(folder: Path, summary: AdapterSummary) -> None:
    """Read the values of an adapter whose files do not change meanwhile. It blocks.

    Raises:
        AdapterError: One is an infinity or no number; it names the tensor.
    """
    with (folder / WEIGHTS_NAME).open("rb") as file:
        for module in summary.modules:
            for tensor in (module.down, module.up):
                if not _is_finite(file, tensor):
                    raise AdapterError(
                        f"{WEIGHTS_NAME}: tensor {tensor.name}: not all values are finite",
                        tensor.name,
                    )


def _is_finite(file: BinaryIO, tensor: StoredTensor) -> bool:
    kind, exponent = _EXPONENTS[tensor.dtype]
    file.seek(tensor.begin)
    left = tensor.end - tensor.begin
    while left:
        piece = file.read(min(left, _PIECE))
        values = np.frombuffer(piece, kind)
        if bool(((values & exponent) == exponent).any()):
            return False
        left -= len(piece)
    return True
