"""bitsandbytes: blocks of values from a table of 16 (nf4, fp4), and rows of int8.

Layout: bitsandbytes/functional.py (QuantState.as_dict, dequantize_4bit) and nn/modules.py
(Int8Params). Method: Dettmers et al., 2022 and 2023.
"""

import json
from typing import Any, Final

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.stored.parts import StoredTensors, part

_STATES: Final = ("bitsandbytes__nf4", "bitsandbytes__fp4")
_INT8_RANGE: Final = 127.0


class BitsAndBytesFormat:
    """Matrices as bitsandbytes writes them, of 4 or 8 bits."""

    name = "bitsandbytes"

    def has(self, tensors: StoredTensors, prefix: str) -> bool:
        """Return whether the matrix is stored in this format."""
        return tensors.has(f"{prefix}.SCB") or self._state_name(tensors, prefix) is not None

    def matrix(
        self, tensors: StoredTensors, prefix: str, shape: tuple[int, int]
    ) -> CodedMatrix | Tensor:
        """Return the matrix [outputs, inputs]: values where blocks cross rows, else codes."""
        state = self._state_name(tensors, prefix)
        if state is None:
            return _int8(tensors, prefix, shape)
        return _of_table(tensors, prefix, state, shape)

    def _state_name(self, tensors: StoredTensors, prefix: str) -> str | None:
        names = (f"{prefix}.weight.quant_state.{state}" for state in _STATES)
        return next((name for name in names if tensors.has(name)), None)


def _int8(tensors: StoredTensors, prefix: str, shape: tuple[int, int]) -> CodedMatrix:
    tensors.ignore(f"{prefix}.weight_format")
    with (
        part(tensors, f"{prefix}.weight", shape) as weight,
        part(tensors, f"{prefix}.SCB", (shape[0],)) as greatest,
    ):
        if weight.dtype != torch.int8:
            raise StartupError(f"the tensor {prefix}.weight has type {weight.dtype}", field="model")
        scales = (greatest.float() / _INT8_RANGE).unsqueeze(1)
        return CodedMatrix(codes=weight.clone(), table=None, scales=scales)


def _of_table(
    tensors: StoredTensors, prefix: str, state_name: str, shape: tuple[int, int]
) -> CodedMatrix | Tensor:
    name, size = f"{prefix}.weight", shape[0] * shape[1]
    state = _state(tensors, state_name)
    if tuple(state.get("shape", ())) != shape:
        raise StartupError(
            f"the tensor {state_name} says the shape {state.get('shape')}, config.json asks for"
            f" {list(shape)}",
            field="model",
        )
    with (
        part(tensors, name, (-(-size // 2), 1), (1, -(-size // 2))) as packed,
        part(tensors, f"{name}.quant_map", (16,)) as table,
        part(tensors, f"{name}.absmax") as stored_greatest,
    ):
        pairs = packed.flatten()
        # The first of two values is in the high half.
        codes = torch.stack((pairs >> 4, pairs & 15), dim=1).flatten()[:size]
        greatest = stored_greatest.float()
        if "nested_blocksize" in state:
            greatest = _nested(tensors, name, stored_greatest, state)
        block = int(state["blocksize"])
        if shape[1] % block == 0:
            scales = greatest.view(shape[0], -1)
            return CodedMatrix(codes=codes.view(shape), table=table.float().clone(), scales=scales)
        values = table.float()[codes.long()]
        return (values * greatest.repeat_interleave(block)[:size]).view(shape)


def _nested(tensors: StoredTensors, name: str, codes: Tensor, state: dict[str, Any]) -> Tensor:
    """Return the greatest values of blocks where they are quantized themselves."""
    with (
        part(tensors, f"{name}.nested_absmax") as greatest,
        part(tensors, f"{name}.nested_quant_map", (256,)) as table,
    ):
        scales = greatest.float().repeat_interleave(int(state["nested_blocksize"]))[: len(codes)]
        return table.float()[codes.long()] * scales + float(state["nested_offset"])


def _state(tensors: StoredTensors, name: str) -> dict[str, Any]:
    with part(tensors, name) as text:
        try:
            found = json.loads(bytes(text.tolist()))
        except ValueError as error:
            raise StartupError(
                f"the tensor {name} holds no JSON: {error}", field="model"
            ) from error
    needed = ["blocksize"]
    if isinstance(found, dict) and "nested_blocksize" in found:
        needed += ["nested_blocksize", "nested_offset"]
    if not isinstance(found, dict) or not all(
        isinstance(found.get(one), int | float) for one in needed
    ):
        raise StartupError(f"the tensor {name} does not say {', '.join(needed)}", field="model")
    return found
