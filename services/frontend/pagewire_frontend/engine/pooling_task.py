"""The tasks of pooling by name, and the requests that they become."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pagewire_frontend.engine.embedding import embed_requests
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.generation_request import GenerationRequest, Prompt
from pagewire_shared.sampling.pooling import PoolingKind, PoolingParams


class PoolTask(enum.Enum):
    """What is computed of each input; the values are vLLM's names."""

    EMBED = "embed"
    TOKEN_EMBED = "token_embed"
    CLASSIFY = "classify"


_KINDS: Final[Mapping[PoolTask, PoolingKind]] = {
    PoolTask.TOKEN_EMBED: "tokens",
    PoolTask.CLASSIFY: "scores",
}


def default_task(model: LoadedModel) -> PoolTask:
    """Return the task of a request that names none."""
    if model.tasks.labels:
        return PoolTask.CLASSIFY
    return PoolTask.TOKEN_EMBED if model.tasks.is_encoder else PoolTask.EMBED


def pooling_requests(
    model: LoadedModel,
    inputs: Sequence[Prompt],
    task: PoolTask,
    params: PoolingParams,
    **options: Any,
) -> list[GenerationRequest]:
    """Return one request per input. Raises InvalidRequestError naming the field.

    Args:
        model: Whose defaults fill the open fields of `params`.
        inputs: At least one.
        task: Decides the kind of pooling.
        params: Without a kind.
        options: As of `embed_requests`.
    """
    kind = _KINDS.get(task)
    if task is PoolTask.TOKEN_EMBED and params.normalize is None:
        params = replace(params, normalize=True)
    return embed_requests(model, inputs, replace(params, pooling=kind), **options)
