"""Pagewire: LLM serving split by role. What users import; everything is loaded on first use.

Importing this package pulls in neither torch nor transformers nor grpc.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagewire.llm import LLM as LLM
    from pagewire.outputs import CompletionOutput as CompletionOutput
    from pagewire.outputs import RequestOutput as RequestOutput
    from pagewire_shared.sampling import SamplingParams as SamplingParams

__version__ = "0.2.0"

_EXPORTS = {
    "LLM": "pagewire.llm",
    "CompletionOutput": "pagewire.outputs",
    "RequestOutput": "pagewire.outputs",
    "SamplingParams": "pagewire_shared.sampling",
}

__all__ = ["LLM", "CompletionOutput", "RequestOutput", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'pagewire' has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
