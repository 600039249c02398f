"""Pagewire: LLM serving split by role. What users import; everything is loaded on first use.

Importing this package pulls in neither torch nor transformers nor grpc.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagewire.beam_search import BeamSearchOutput as BeamSearchOutput
    from pagewire.beam_search import BeamSearchParams as BeamSearchParams
    from pagewire.beam_search import BeamSearchSequence as BeamSearchSequence
    from pagewire.client import AsyncClient as AsyncClient
    from pagewire.client import Client as Client
    from pagewire.embeddings import EmbeddingOutput as EmbeddingOutput
    from pagewire.embeddings import EmbeddingRequestOutput as EmbeddingRequestOutput
    from pagewire.embeddings import Embeddings as Embeddings
    from pagewire.events import ToolCall as ToolCall
    from pagewire.llm import LLM as LLM
    from pagewire.outputs import CompletionOutput as CompletionOutput
    from pagewire.outputs import Logprob as Logprob
    from pagewire.outputs import RequestOutput as RequestOutput
    from pagewire_shared.pooling import PoolingParams as PoolingParams
    from pagewire_shared.sampling import SamplingParams as SamplingParams
    from pagewire_shared.structured_outputs import (
        StructuredOutputsParams as StructuredOutputsParams,
    )

__version__ = "0.13.0"

_EXPORTS = {
    "LLM": "pagewire.llm",
    "AsyncClient": "pagewire.client",
    "BeamSearchOutput": "pagewire.beam_search",
    "BeamSearchParams": "pagewire.beam_search",
    "BeamSearchSequence": "pagewire.beam_search",
    "Client": "pagewire.client",
    "CompletionOutput": "pagewire.outputs",
    "EmbeddingOutput": "pagewire.embeddings",
    "EmbeddingRequestOutput": "pagewire.embeddings",
    "Embeddings": "pagewire.embeddings",
    "Logprob": "pagewire.outputs",
    "PoolingParams": "pagewire_shared.pooling",
    "RequestOutput": "pagewire.outputs",
    "SamplingParams": "pagewire_shared.sampling",
    "StructuredOutputsParams": "pagewire_shared.structured_outputs",
    "ToolCall": "pagewire.events",
}

__all__ = [
    "LLM",
    "AsyncClient",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "Client",
    "CompletionOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "Embeddings",
    "Logprob",
    "PoolingParams",
    "RequestOutput",
    "SamplingParams",
    "StructuredOutputsParams",
    "ToolCall",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'pagewire' has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
