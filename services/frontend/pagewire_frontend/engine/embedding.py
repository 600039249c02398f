"""Computes the vectors of texts: one session per input, all at once, and shortens and scales each.
Knows neither HTTP nor generated messages."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.metrics.timeline import joined
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.generation_request import GenerationRequest, Prompt, prompt_field
from pagewire_frontend.session.events import Closed, Usage, joined_versions
from pagewire_shared.errors import InternalError, InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams

MAX_INPUTS = 256
"""Inputs of one request."""

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors in the order of the inputs, and the tokens used."""

    vectors: list[Vector]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client wrote an input: the field, and what begins a message about it."""

    field: str
    name: str


def check_num_inputs(num_inputs: int, most: int = MAX_INPUTS) -> None:
    """Raise InvalidRequestError naming input for none or too many."""
    if not num_inputs:
        raise InvalidRequestError("input must not be empty", field="input")
    if num_inputs > most:
        raise InvalidRequestError(
            f"input takes at most {most} inputs, got {num_inputs}", field="input"
        )


def embed_requests(
    model: LoadedModel,
    inputs: Sequence[Prompt],
    pooling: PoolingParams,
    *,
    tenant: str | None = None,
    cache_salt: str | None = None,
    priority: int = 0,
    timeout_seconds: float | None = None,
    most: int = MAX_INPUTS,
) -> list[GenerationRequest]:
    """Return one request per input, of at most `most`. Raises InvalidRequestError."""
    check_num_inputs(len(inputs), most)
    pooling = model.tasks.resolved(pooling)
    model.tasks.check(model.name, pooling)
    # Nothing is sampled; these parameters are neutral.
    params = SamplingParams(
        temperature=0.0,
        seed=0,
        max_tokens=1,
        truncate_prompt_tokens=pooling.truncate_prompt_tokens,
    )
    return [
        GenerationRequest(
            model=model,
            prompt=prompt,
            params=params,
            pooling=pooling,
            tenant=tenant,
            cache_salt=cache_salt,
            priority=priority,
            timeout_seconds=timeout_seconds,
        )
        for prompt in inputs
    ]


async def embed(
    engine: Engine,
    requests: Sequence[GenerationRequest],
    places: Sequence[Place | None] | None = None,
) -> Embeddings:
    """Return the vector, vectors or class scores of every request; the first failure ends all.

    Args:
        engine: Runs the requests.
        places: Where the client wrote each input; by default in "input".

    Raises:
        PagewireError: One of the requests failed.
    """
    if places is None:
        several = len(requests) > 1
        places = [Place("input", f"input {at}") if several else None for at in range(len(requests))]
    tasks = [
        asyncio.ensure_future(_embed_one(engine, *pair))
        for pair in zip(requests, places, strict=True)
    ]
    try:
        outcomes = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    usage = Usage(
        sum(usage.prompt_tokens for _, usage in outcomes),
        0,
        sum(usage.cached_tokens for _, usage in outcomes),
        reduce(joined, (usage.cached_tokens_by_tier for _, usage in outcomes)),
        weights_version=reduce(joined_versions, (usage.weights_version for _, usage in outcomes)),
    )
    return Embeddings([vector for vector, _ in outcomes], usage)


async def _embed_one(
    engine: Engine, request: GenerationRequest, place: Place | None
) -> tuple[Vector, Usage]:
    """Return one outcome; errors name its place, if there is one."""
    assert request.pooling is not None
    try:
        session = await engine.open(request)
    except InvalidRequestError as error:
        if error.field == prompt_field(request) and place is not None:
            error.message = f"{place.name}: {error.message}"
            error.field = place.field
        raise
    try:
        async for event in session.events():
            if isinstance(event, Closed):
                data = session.entry.vector
                assert data is not None, "a request that pools ends with its vector"
                vector = np.frombuffer(data, dtype="<f4")
                if request.pooling.kind == "tokens":
                    vector = vector.reshape(len(session.entry.prompt_token_ids), -1)
                return format_vector(vector, request.pooling), event.usage
    finally:
        engine.close(session)
    raise AssertionError("a session ends with Closed")


def format_vector(vector: Vector, pooling: PoolingParams) -> Vector:
    """Return the vector [size], or vectors [tokens, size], as the client gets them: whole, or the
    first dimensions, scaled again.

    Raises:
        InvalidRequestError: It has fewer dimensions; known only now if no worker has reported them.
        InternalError: A number is not finite, which JSON would show as null.
    """
    if not np.isfinite(vector).all():
        raise InternalError("the model made a vector with numbers that are not finite")
    wanted = pooling.dimensions
    if wanted is None:
        return vector
    size = vector.shape[-1]
    if wanted > size:
        raise InvalidRequestError(
            f"dimensions is {wanted}, but the vectors have {size}", field="dimensions"
        )
    first = vector[..., :wanted]
    if not pooling.is_normalized:
        return first
    lengths = np.linalg.norm(first.astype(np.float64), axis=-1, keepdims=True)
    # Zero vectors have no direction and stay zero.
    lengths[lengths == 0] = 1.0
    scaled: Vector = (first / lengths).astype(np.float32)
    return scaled
