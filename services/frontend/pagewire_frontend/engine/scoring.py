"""Scores pairs of texts: with the classification head of a model that has one, else by the cosine
of their vectors. Also turns class scores into probabilities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pagewire_frontend.engine.embedding import MAX_INPUTS, Place, Vector, embed, embed_requests
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.models.tasks import Activation
from pagewire_frontend.prompts.generation_request import (
    GenerationRequest,
    Prompt,
    TextPrompt,
)
from pagewire_frontend.session.events import Usage
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.pooling import PoolingParams

Wide = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairScores:
    """One score per pair, in order, and the tokens used."""

    scores: list[float]
    usage: Usage


@dataclass(frozen=True, slots=True)
class PairFields:
    """The client's names of the two sides of pairs."""

    first: str
    second: str


SCORE_FIELDS: Final = PairFields("queries", "documents")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairsRequest:
    """Pairs of texts to score.

    Attributes:
        queries: One, or as many as documents.
        is_activated: Whether class scores become probabilities; None: as the model's files say.
        fields: How the client calls queries and documents.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    is_activated: bool | None = None
    truncate_prompt_tokens: int | None = None
    tenant: str | None = None
    cache_salt: str | None = None
    priority: int = 0
    timeout_seconds: float | None = None
    fields: PairFields = SCORE_FIELDS

    def check(self) -> None:
        """Raise InvalidRequestError naming the side at fault."""
        first, second = self.fields.first, self.fields.second
        for field, texts in ((first, self.queries), (second, self.documents)):
            if not texts:
                raise InvalidRequestError(f"{field} must not be empty", field=field)
            if len(texts) > MAX_INPUTS:
                raise InvalidRequestError(
                    f"{field} takes at most {MAX_INPUTS} texts, got {len(texts)}", field=field
                )
        if len(self.queries) not in (1, len(self.documents)):
            raise InvalidRequestError(
                f"{first} has {len(self.queries)} texts; it takes one, or as many as {second}, "
                f"{len(self.documents)}",
                field=first,
            )


async def score(engine: Engine, model: LoadedModel, asked: PairsRequest) -> PairScores:
    """Return the score of every pair.

    Raises:
        InvalidRequestError: A side has too few or too many texts, or the model has several classes.
        PagewireError: One of the pairs failed.
    """
    asked.check()
    if not model.tasks.labels:
        return await _cosines(engine, model, asked)
    if len(model.tasks.labels) != 1:
        raise InvalidRequestError(
            f"{model.name} has {len(model.tasks.labels)} classes; scores need a model with one",
            field="model",
        )
    pairs = [
        TextPrompt(query, second=document)
        for query, document in zip(_repeated(asked), asked.documents, strict=True)
    ]
    pooling = PoolingParams(pooling="scores", truncate_prompt_tokens=asked.truncate_prompt_tokens)
    field = asked.fields.second
    places = [Place(field, f"{field}.{index}") for index in range(len(pairs))]
    found = await embed(engine, _requests(model, pairs, pooling, asked), places)
    vectors = [activated(vector, model, asked.is_activated) for vector in found.vectors]
    return PairScores([float(vector[0]) for vector in vectors], found.usage)


async def _cosines(engine: Engine, model: LoadedModel, asked: PairsRequest) -> PairScores:
    """Return the cosine of the vectors of every pair; each text is computed once."""
    pooling = PoolingParams(truncate_prompt_tokens=asked.truncate_prompt_tokens, normalize=True)
    first, second = asked.fields.first, asked.fields.second
    places = {text: Place(second, f"{second}.{at}") for at, text in enumerate(asked.documents)}
    places |= {text: Place(first, f"{first}.{at}") for at, text in enumerate(asked.queries)}
    prompts = [TextPrompt(text) for text in places]
    requests = _requests(model, prompts, pooling, asked)
    found = await embed(engine, requests, list(places.values()))
    vectors = dict(zip(places, (one.astype(np.float64) for one in found.vectors), strict=True))
    pairs = zip(_repeated(asked), asked.documents, strict=True)
    # Rounding may lead past the bounds of a cosine.
    cosines = [min(1.0, max(-1.0, float(vectors[one] @ vectors[two]))) for one, two in pairs]
    return PairScores(cosines, found.usage)


def _repeated(asked: PairsRequest) -> list[str]:
    """Return one query per document."""
    return list(asked.queries) * (len(asked.documents) if len(asked.queries) == 1 else 1)


def _requests(
    model: LoadedModel, prompts: Sequence[Prompt], pooling: PoolingParams, asked: PairsRequest
) -> list[GenerationRequest]:
    return embed_requests(
        model,
        prompts,
        pooling,
        tenant=asked.tenant,
        cache_salt=asked.cache_salt,
        priority=asked.priority,
        timeout_seconds=asked.timeout_seconds,
        most=2 * MAX_INPUTS,
    )


def _softmax(scores: Wide) -> Wide:
    exponentials: Wide = np.exp(scores - scores.max())
    total: Wide = exponentials / exponentials.sum()
    return total


def _sigmoid(scores: Wide) -> Wide:
    values: Wide = 1.0 / (1.0 + np.exp(-scores.clip(-500.0, 500.0)))
    return values


_ACTIVATIONS: Final[Mapping[Activation, Callable[[Wide], Wide]]] = {
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "identity": lambda scores: scores,
}


def activated(scores: Vector, model: LoadedModel, wanted: bool | None) -> Vector:
    """Return the class scores [labels] of one input, as probabilities unless these are unwanted."""
    if wanted is False:
        return scores
    return _ACTIVATIONS[model.tasks.activation](scores.astype(np.float64)).astype(np.float32)
