"""A request as it is told to a scheduler. Plain data."""

from collections.abc import Sequence
from dataclasses import dataclass

from pagewire_frontend.session.prompt_blocks import PromptBlocks
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams


@dataclass(frozen=True, slots=True)
class SubmitRecord:
    """A request as it is told to a scheduler, for the first time or again."""

    request_id: RequestId
    epoch: int
    handle: int
    model: str
    prompt_token_ids: Sequence[int]
    emitted: tuple[tuple[tuple[int, ...], bool], ...]
    """Per choice: token ids from position 0, and whether it has ended."""
    params: SamplingParams
    eos_token_ids: tuple[int, ...]
    tenant: str | None
    cache_salt: bytes | None
    priority: int
    pooling: PoolingParams | None = None
    prompt_blocks: PromptBlocks | None = None


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """A request as it is listed in a hello after a broken stream."""

    request_id: RequestId
    epoch: int
    handle: int
    next_positions: tuple[int, ...]
