"""A request as a frontend submits it."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from pagewire_scheduler.core.blocks.prefix_cache import GivenNames
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.beam import BeamParams
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.weights.version import WeightsVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request as a frontend submits it.

    Attributes:
        emitted: Tokens already emitted per choice; one entry per choice.
        is_finished: Choices that have ended and are not run again.
        eos_token_ids: End-of-sequence ids of the model.
        salt: Tenant and cache salt, canonically encoded; only equal salts share blocks.
        tenant: Tenant that is charged for the work; empty for the default tenant.
        priority: Lower runs first; its bounds are in pagewire_shared.sampling.priority.
        deadline: Instant on the caller's clock, or None.
        age: Seconds since the frontend took the request.
        beam_search: Search with as many beams as there are choices, instead of sampling.
        pooling: Turn the prompt into one vector, instead of sampling.
        given_names: Names of the prompt's blocks that came with it; None to compute them.
        adapter: SHA-256 of the content of a LoRA adapter; empty for the model alone.
        adapter_sources: Where workers may read that content, the best first.
        predicted_token_ids: Tokens that the client expects the output to be; empty for none.
        cache_bytes: Bytes that the tenant may keep in the cache of each worker; None for no bound.
        must_be_held: Refuse the request unless the scheduler has it already.
        weights: What `emitted` was computed with; None for nothing, or when unknown.
        highest_prompt_id: Largest token id of the prompt; None when unknown.
        is_traced: Whether its timelines have moments.
    """

    request_id: RequestId
    epoch: int
    handle: int
    model: str
    prompt_token_ids: Seq[int]
    emitted: tuple[Seq[int], ...]
    is_finished: tuple[bool, ...]
    sampling: SamplingParams
    eos_token_ids: tuple[int, ...] = ()
    salt: bytes = b""
    tenant: str = ""
    priority: int = 0
    deadline: float | None = None
    age: float = 0.0
    beam_search: BeamParams | None = None
    pooling: PoolingParams | None = None
    given_names: GivenNames | None = None
    adapter: bytes = b""
    adapter_sources: tuple[str, ...] = ()
    predicted_token_ids: Seq[int] = ()
    cache_bytes: int | None = None
    must_be_held: bool = False
    weights: WeightsVersion | None = None
    highest_prompt_id: int | None = None
    is_traced: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether it was accepted before, by this scheduler or another."""
        return self.epoch > 0 or any(self.emitted)
