"""Finds values in the tensors of an adapter that are no finite numbers."""

from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import AdapterSummary
from pagewire_shared.adapters.content_id import WEIGHTS_NAME
from pagewire_shared.adapters.tensor_header import StoredTensor

_PIECE: Final = 1 << 18
"""Bytes that are looked at together: they stay in the second cache."""

# Without the sign, infinities and NaNs have at least these bits, and nothing else has (IEEE 754).
_LEAST: Final = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}


def are_finite(data: bytes | memoryview, dtype: str) -> bool:
    """Return whether all values are finite.

    Args:
        data: At most some hundreds of KiB, or it is slower than it could be.
        dtype: A key of DTYPE_BYTES.
    """
    kind, least = _LEAST[dtype]
    values = np.frombuffer(data, kind)
    sign = 1 << (8 * values.itemsize - 1)
    return not len(values) or int((values & (sign - 1)).max()) < least


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
    file.seek(tensor.begin)
    places = range(tensor.begin, tensor.end, _PIECE)
    return all(
        are_finite(file.read(min(_PIECE, tensor.end - place)), tensor.dtype) for place in places
    )
