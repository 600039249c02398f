"""Casts of the interpreter that round as devices do, to the nearest and in a tie to the even.

The interpreter's own cut bfloat16 off, and lose a carry into the exponent of float8_e4m3fn: 31.5
becomes 16. Tests that count roundings, or store fp8, need better.
"""

import torch
import triton.language as tl
from triton.runtime import interpreter

_TYPES = {
    tl.bfloat16: (torch.bfloat16, torch.uint16),
    tl.float8e4nv: (torch.float8_e4m3fn, torch.uint8),
}


def round_as_devices_do(monkeypatch):
    """Let torch cast float32 to these types until the test ends."""
    original = interpreter._convert_float

    def convert(values, source, target, rounding_mode):
        if source.scalar != tl.float32 or target.scalar not in _TYPES:
            return original(values, source, target, rounding_mode)
        dtype, bits = _TYPES[target.scalar]
        return torch.from_numpy(values.copy()).to(dtype).view(bits).numpy()

    monkeypatch.setattr(interpreter, "_convert_float", convert)
