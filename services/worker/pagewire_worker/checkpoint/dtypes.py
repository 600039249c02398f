"""Maps names of types, as settings and checkpoints spell them, to torch's types."""

import torch

FP8 = torch.float8_e4m3fn
"""The only 8-bit float type of weights, activations, keys and values."""

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

CACHE_DTYPES = {"fp8_e4m3": FP8, "int8": torch.int8}
"""Values of --kv-cache-dtype, except auto."""


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a type for pick_dtype."""
    return str(dtype).removeprefix("torch.")


def pick_dtype(name: str, published: str | None) -> torch.dtype:
    """Return the type of a model for --dtype `name`, with weights of the type `published`."""
    if name != "auto":
        return DTYPES[name]
    return DTYPES.get(published or "float32", torch.float32)


def cache_name(dtype: torch.dtype | None) -> str:
    """Return the name in --kv-cache-dtype of a type of CACHE_DTYPES; "auto" for others."""
    return next((name for name, one in CACHE_DTYPES.items() if one == dtype), "auto")


def pick_cache_dtype(name: str, dtype: torch.dtype) -> torch.dtype:
    """Return the type of the KV cache for --kv-cache-dtype `name`, of a model of type `dtype`."""
    return CACHE_DTYPES.get(name, dtype)
