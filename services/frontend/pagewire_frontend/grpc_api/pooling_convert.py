"""Conversion between the messages of Pool and Score and plain requests and outcomes."""

from collections.abc import Mapping
from typing import Final

from pagewire_frontend.access.api_keys import tenant_of
from pagewire_frontend.engine.embedding import Embeddings, check_num_inputs
from pagewire_frontend.engine.pooling_task import PoolTask, default_task, pooling_requests
from pagewire_frontend.engine.request_fit import check_num_ids
from pagewire_frontend.engine.scoring import PairScores, PairsRequest, activated
from pagewire_frontend.grpc_api.convert import input_prompt
from pagewire_frontend.grpc_api.event_convert import usage_message
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.generation_request import GenerationRequest
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.pooling import PoolingParams

_TASKS: Final[Mapping[int, PoolTask]] = {
    pb.POOL_TASK_EMBED: PoolTask.EMBED,
    pb.POOL_TASK_TOKEN_EMBED: PoolTask.TOKEN_EMBED,
    pb.POOL_TASK_CLASSIFY: PoolTask.CLASSIFY,
}


def pool_task(message: pb.PoolRequest, model: LoadedModel) -> PoolTask:
    """Return the task. Raises InvalidRequestError for an unknown one."""
    if message.task == pb.POOL_TASK_UNSPECIFIED:
        return default_task(model)
    if message.task not in _TASKS:
        raise InvalidRequestError(f"there is no task {message.task}", field="task")
    return _TASKS[message.task]


def pool_requests(
    message: pb.PoolRequest, model: LoadedModel, task: PoolTask, timeout_seconds: float | None
) -> list[GenerationRequest]:
    """Return one request per input. Raises InvalidRequestError naming the field."""
    check_num_inputs(len(message.inputs))
    check_num_ids(sum(len(item.token_ids.ids) for item in message.inputs), "input")
    special = message.add_special_tokens if message.HasField("add_special_tokens") else True
    is_vector = task is not PoolTask.CLASSIFY
    return pooling_requests(
        model,
        [input_prompt(item, model, special) for item in message.inputs],
        task,
        PoolingParams(
            normalize=message.is_normalized
            if is_vector and message.HasField("is_normalized")
            else None,
            dimensions=message.dimensions if message.HasField("dimensions") else None,
            truncate_prompt_tokens=_truncation(message),
        ),
        tenant=tenant_of(message.tenant if message.HasField("tenant") else None),
        cache_salt=message.cache_salt if message.HasField("cache_salt") else None,
        priority=message.priority,
        timeout_seconds=timeout_seconds,
    )


def pool_response(
    message: pb.PoolRequest, model: LoadedModel, task: PoolTask, found: Embeddings
) -> pb.PoolResponse:
    """Return the response message."""
    rows, is_classified = found.vectors, task is PoolTask.CLASSIFY
    if is_classified:
        wanted = message.is_normalized if message.HasField("is_normalized") else None
        rows = [activated(row, model, wanted) for row in rows]
    labels = model.tasks.labels if is_classified else ()
    outputs = [
        pb.PooledRows(values=row.reshape(-1).tolist(), num_rows=len(row) if row.ndim == 2 else 1)
        for row in rows
    ]
    return pb.PoolResponse(
        model=model.shown_name, outputs=outputs, labels=labels, usage=usage_message(found.usage)
    )


def pairs_request(message: pb.ScoreRequest, timeout_seconds: float | None) -> PairsRequest:
    """Return the pairs of a request."""
    return PairsRequest(
        queries=message.queries,
        documents=message.documents,
        is_activated=message.is_activated if message.HasField("is_activated") else None,
        truncate_prompt_tokens=_truncation(message),
        tenant=tenant_of(message.tenant if message.HasField("tenant") else None),
        cache_salt=message.cache_salt if message.HasField("cache_salt") else None,
        priority=message.priority,
        timeout_seconds=timeout_seconds,
    )


def score_response(model: str, found: PairScores) -> pb.ScoreResponse:
    """Return the response message."""
    return pb.ScoreResponse(model=model, scores=found.scores, usage=usage_message(found.usage))


def _truncation(message: pb.PoolRequest | pb.ScoreRequest) -> int | None:
    has_one = message.HasField("truncate_prompt_tokens")
    return message.truncate_prompt_tokens if has_one else None
