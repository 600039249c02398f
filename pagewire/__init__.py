"""Pagewire: LLM serving split by role. Its public names are imported on first use.

Importing this package imports neither torch nor transformers nor grpc.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagewire.client.blocking_client import Client as Client
    from pagewire.client.client import AsyncClient as AsyncClient
    from pagewire.client.embeddings import EmbeddingOutput as EmbeddingOutput
    from pagewire.client.embeddings import EmbeddingRequestOutput as EmbeddingRequestOutput
    from pagewire.client.embeddings import Embeddings as Embeddings
    from pagewire.client.events import ToolCall as ToolCall
    from pagewire.offline.async_llm import AsyncLLM as AsyncLLM
    from pagewire.offline.async_llm import AsyncLLMEngine as AsyncLLMEngine
    from pagewire.offline.beam_search import BeamSearchOutput as BeamSearchOutput
    from pagewire.offline.beam_search import BeamSearchParams as BeamSearchParams
    from pagewire.offline.beam_search import BeamSearchSequence as BeamSearchSequence
    from pagewire.offline.engine_args import AsyncEngineArgs as AsyncEngineArgs
    from pagewire.offline.engine_args import EngineArgs as EngineArgs
    from pagewire.offline.llm import LLM as LLM
    from pagewire.offline.llm_engine import LLMEngine as LLMEngine
    from pagewire.offline.lora import LoRARequest as LoRARequest
    from pagewire.offline.outputs import CompletionOutput as CompletionOutput
    from pagewire.offline.outputs import Logprob as Logprob
    from pagewire.offline.outputs import RequestOutput as RequestOutput
    from pagewire_shared.sampling.params import SamplingParams as SamplingParams
    from pagewire_shared.sampling.pooling import PoolingParams as PoolingParams
    from pagewire_shared.sampling.structured_outputs import (
        GuidedDecodingParams as GuidedDecodingParams,
    )
    from pagewire_shared.sampling.structured_outputs import (
        StructuredOutputsParams as StructuredOutputsParams,
    )

__version__ = "0.39.0"

_EXPORTS = {
    "LLMEngine": "pagewire.offline.llm_engine",
    "EngineArgs": "pagewire.offline.engine_args",
    "AsyncLLMEngine": "pagewire.offline.async_llm",
    "AsyncLLM": "pagewire.offline.async_llm",
    "AsyncEngineArgs": "pagewire.offline.engine_args",
    "LLM": "pagewire.offline.llm",
    "AsyncClient": "pagewire.client.client",
    "BeamSearchOutput": "pagewire.offline.beam_search",
    "BeamSearchParams": "pagewire.offline.beam_search",
    "BeamSearchSequence": "pagewire.offline.beam_search",
    "Client": "pagewire.client.blocking_client",
    "CompletionOutput": "pagewire.offline.outputs",
    "EmbeddingOutput": "pagewire.client.embeddings",
    "EmbeddingRequestOutput": "pagewire.client.embeddings",
    "Embeddings": "pagewire.client.embeddings",
    "GuidedDecodingParams": "pagewire_shared.sampling.structured_outputs",
    "Logprob": "pagewire.offline.outputs",
    "LoRARequest": "pagewire.offline.lora",
    "PoolingParams": "pagewire_shared.sampling.pooling",
    "RequestOutput": "pagewire.offline.outputs",
    "SamplingParams": "pagewire_shared.sampling.params",
    "StructuredOutputsParams": "pagewire_shared.sampling.structured_outputs",
    "ToolCall": "pagewire.client.events",
}

__all__ = [
    "LLM",
    "AsyncClient",
    "AsyncEngineArgs",
    "AsyncLLM",
    "AsyncLLMEngine",
    "BeamSearchOutput",
    "BeamSearchParams",
    "BeamSearchSequence",
    "Client",
    "CompletionOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "Embeddings",
    "EngineArgs",
    "GuidedDecodingParams",
    "LLMEngine",
    "LoRARequest",
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
