"""Scores, classes and pooled vectors: the requests for them, and what clients return."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pagewire.client.client_convert import EmbedInput, input_messages, usage_from_message
from pagewire.client.events import Usage
from pagewire_protos.frontend.v1 import inference_pb2
from pagewire_shared.errors import InvalidRequestError

PoolTask = Literal["embed", "token_embed", "classify"]

_TASKS: dict[str | None, inference_pb2.PoolTask] = {
    None: inference_pb2.POOL_TASK_UNSPECIFIED,
    "embed": inference_pb2.POOL_TASK_EMBED,
    "token_embed": inference_pb2.POOL_TASK_TOKEN_EMBED,
    "classify": inference_pb2.POOL_TASK_CLASSIFY,
}


@dataclass(frozen=True, slots=True)
class Scores:
    """The result of one call: one score per pair, in order."""

    model: str
    scores: list[float]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Classification:
    """The classes of one input; `label` is the likeliest one, `probs` has one number per label."""

    label: str
    probs: list[float]


@dataclass(frozen=True, slots=True)
class Classifications:
    """The result of one call: the classes of each input, in order, and the names of all."""

    model: str
    outputs: list[Classification]
    labels: list[str]
    usage: Usage


@dataclass(frozen=True, slots=True)
class PooledOutputs:
    """The result of one call: the rows of each input, in order.

    An input has one row, or one per token for the task "token_embed".
    """

    model: str
    outputs: list[list[list[float]]]
    usage: Usage


def score_request(
    queries: str | Sequence[str],
    documents: str | Sequence[str],
    model: str | None,
    truncate_prompt_tokens: int | None,
    use_activation: bool | None,
) -> inference_pb2.ScoreRequest:
    """Return the request for pairs."""
    request = inference_pb2.ScoreRequest(
        model=model,
        queries=[queries] if isinstance(queries, str) else queries,
        documents=[documents] if isinstance(documents, str) else documents,
        truncate_prompt_tokens=truncate_prompt_tokens,
    )
    if use_activation is not None:
        request.is_activated = use_activation
    return request


def scores_from_message(response: inference_pb2.ScoreResponse) -> Scores:
    """Return the scores in an answer."""
    return Scores(response.model, list(response.scores), usage_from_message(response.usage))


def pool_request(
    inputs: EmbedInput | Sequence[EmbedInput],
    task: PoolTask | None,
    model: str | None,
    truncate_prompt_tokens: int | None,
    normalize: bool | None,
    dimensions: int | None = None,
) -> inference_pb2.PoolRequest:
    """Return the request for one input or a list of them. Raises InvalidRequestError."""
    if task not in _TASKS:
        shown = ", ".join(repr(name) for name in _TASKS if name is not None)
        raise InvalidRequestError(f"task must be one of {shown}, got {task!r}", field="task")
    request = inference_pb2.PoolRequest(
        model=model,
        inputs=input_messages(inputs),
        task=_TASKS[task],
        truncate_prompt_tokens=truncate_prompt_tokens,
        dimensions=dimensions,
    )
    if normalize is not None:
        request.is_normalized = normalize
    return request


def pooled_from_message(response: inference_pb2.PoolResponse) -> PooledOutputs:
    """Return the rows in an answer."""
    return PooledOutputs(
        response.model,
        [_rows(output) for output in response.outputs],
        usage_from_message(response.usage),
    )


def classifications_from_message(response: inference_pb2.PoolResponse) -> Classifications:
    """Return the classes in an answer."""
    labels = list(response.labels)
    outputs = []
    for output in response.outputs:
        probs = list(output.values)
        outputs.append(Classification(labels[probs.index(max(probs))], probs))
    return Classifications(response.model, outputs, labels, usage_from_message(response.usage))


def _rows(output: inference_pb2.PooledRows) -> list[list[float]]:
    values, num_rows = list(output.values), max(1, output.num_rows)
    size = len(values) // num_rows
    return [values[start : start + size] for start in range(0, num_rows * size, size)]
