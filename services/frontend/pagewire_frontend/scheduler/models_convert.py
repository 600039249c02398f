"""The models that a scheduler offers, and their conversion from its messages."""

from dataclasses import dataclass
from functools import lru_cache

from pagewire_frontend.session.prompt_blocks import BlockNaming
from pagewire_protos.common.v1.adapter_shapes_pb2 import AdapterShapes
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.adapters.model_shapes import ModelShapes
from pagewire_shared.adapters.shapes_convert import shapes_from_message


@dataclass(frozen=True, slots=True)
class OfferedModel:
    """A model that a scheduler's workers serve at the moment.

    Attributes:
        adapter_shapes: What an adapter has to fit: all of them.
        is_exact: Whether all workers compute a request to the same bits at any time.
    """

    name: str
    tokenizer_fingerprint: bytes
    max_model_len: int
    num_workers: int
    embedding_size: int = 0
    namings: tuple[BlockNaming, ...] = ()
    max_adapter_rank: int = 0
    max_adapters: int = 0
    adapter_shapes: tuple[ModelShapes, ...] = ()
    is_exact: bool = False


def served_models(message: pb.ServedModels) -> dict[str, OfferedModel]:
    """Return the models by served name. Raises WireError for shapes that make no sense."""
    return {
        model.name: OfferedModel(
            model.name,
            model.tokenizer_fingerprint,
            model.max_model_len,
            model.num_workers,
            model.embedding_size,
            tuple(
                BlockNaming(
                    model_fingerprint=model.model_fingerprint,
                    layout_fingerprint=naming.layout_fingerprint,
                    dtype=naming.dtype,
                    block_size=naming.block_size,
                    is_by_tenant=naming.is_by_tenant,
                )
                for naming in model.namings
            ),
            model.max_adapter_rank,
            model.max_adapters,
            tuple(_shapes(one.SerializeToString()) for one in model.adapter_shapes),
            model.is_exact,
        )
        for model in message.models
    }


@lru_cache(maxsize=16)
def _shapes(data: bytes) -> ModelShapes:
    # The same ones again for every message, so that comparing them takes no time.
    return shapes_from_message(AdapterShapes.FromString(data))
