"""Converts sampling, beam, pooling and structured output parameters to and from messages."""

from pagewire_protos.common.v1 import pooling_pb2, sampling_pb2, structured_outputs_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.beam import BeamParams
from pagewire_shared.sampling.fields import SENT
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingKind, PoolingParams
from pagewire_shared.sampling.structured_outputs import FIELD, StructuredOutputsParams

_STOPPING_TO_MESSAGE: dict[bool | None, sampling_pb2.EarlyStopping] = {
    False: sampling_pb2.EARLY_STOPPING_HEURISTIC,
    True: sampling_pb2.EARLY_STOPPING_FIRST,
    None: sampling_pb2.EARLY_STOPPING_NEVER,
}
_STOPPING_FROM_MESSAGE: dict[int, bool | None] = {
    sampling_pb2.EARLY_STOPPING_UNSPECIFIED: False,
    **{number: value for value, number in _STOPPING_TO_MESSAGE.items()},
}

_POOLING_KINDS: dict[PoolingKind, pooling_pb2.PoolingKind] = {
    "last": pooling_pb2.POOLING_KIND_LAST,
    "mean": pooling_pb2.POOLING_KIND_MEAN,
    "cls": pooling_pb2.POOLING_KIND_CLS,
    "tokens": pooling_pb2.POOLING_KIND_TOKENS,
    "scores": pooling_pb2.POOLING_KIND_SCORES,
}
_POOLING_NAMES: dict[int, PoolingKind] = {kind: name for name, kind in _POOLING_KINDS.items()}


def sampling_to_message(params: SamplingParams) -> sampling_pb2.SamplingParams:
    """Return the wire form of `params`; `n`, `best_of`, the truncation and the texts stay behind
    with the frontend, and a beam search travels by itself."""
    outputs = params.structured_outputs
    return sampling_pb2.SamplingParams(
        **{field.name: getattr(params, field.name) for field in SENT},
        stop_token_ids=params.stop_token_ids,
        logit_bias=[
            sampling_pb2.LogitBias(token_id=token_id, bias=bias)
            for token_id, bias in params.logit_bias.items()
        ],
        allowed_token_ids=params.allowed_token_ids,
        bad_token_sequences=[
            sampling_pb2.TokenSequence(token_ids=sequence)
            for sequence in params.bad_token_sequences
        ],
        structured_outputs=outputs_to_message(outputs) if outputs is not None else None,
    )


def sampling_from_message(
    message: sampling_pb2.SamplingParams, *, defaults: SamplingParams
) -> SamplingParams:
    """Return `defaults` with every field that is present in `message`.

    Raises:
        InvalidRequestError: A value is out of bounds; names the field.
    """
    changes: dict[str, object] = {}
    for field in SENT:
        if message.HasField(field.name):
            value = getattr(message, field.name)
            # float32 on the wire: 0.1 would come back as 0.10000000149.
            changes[field.name] = as_written(value) if field.kind is float else value
    for name in ("stop_token_ids", "allowed_token_ids"):
        if getattr(message, name):
            changes[name] = tuple(getattr(message, name))
    if message.logit_bias:
        changes["logit_bias"] = {
            entry.token_id: as_written(entry.bias) for entry in message.logit_bias
        }
    if message.bad_token_sequences:
        changes["bad_token_sequences"] = tuple(
            tuple(sequence.token_ids) for sequence in message.bad_token_sequences
        )
    if message.HasField("structured_outputs"):
        changes["structured_outputs"] = outputs_from_message(message.structured_outputs)
    return defaults.with_(**changes)


def outputs_to_message(
    params: StructuredOutputsParams,
) -> structured_outputs_pb2.StructuredOutputs:
    """Return the wire form of `params`."""
    message = structured_outputs_pb2.StructuredOutputs()
    if params.kind == "json_object":
        message.json_object.SetInParent()
    elif params.kind == "choice":
        message.choice.texts.extend(params.choice or ())
    else:
        setattr(message, params.kind, params.text)
    return message


def outputs_from_message(
    message: structured_outputs_pb2.StructuredOutputs,
) -> StructuredOutputsParams:
    """Return the plain form. Raises InvalidRequestError naming the field."""
    match message.WhichOneof("kind"):
        case "json_schema":
            return StructuredOutputsParams(json=message.json_schema)
        case "json_object":
            return StructuredOutputsParams(json_object=True)
        case "regex":
            return StructuredOutputsParams(regex=message.regex)
        case "grammar":
            return StructuredOutputsParams(grammar=message.grammar)
        case "choice":
            return StructuredOutputsParams(choice=tuple(message.choice.texts))
    raise InvalidRequestError(f"{FIELD} names no kind", field=FIELD)


def pooling_to_message(params: PoolingParams) -> pooling_pb2.Pooling:
    """Return the wire form of `params`; dimensions and truncation stay with the frontend."""
    message = pooling_pb2.Pooling(second_start=params.second_start)
    if params.pooling is not None:
        message.kind = _POOLING_KINDS[params.pooling]
    if params.normalize is not None:
        message.is_normalized = params.normalize
    return message


def pooling_from_message(message: pooling_pb2.Pooling) -> PoolingParams:
    """Return the plain form. Raises InvalidRequestError naming the field."""
    if message.kind not in (pooling_pb2.POOLING_KIND_UNSPECIFIED, *_POOLING_KINDS.values()):
        raise InvalidRequestError(f"pooling has no kind {message.kind}", field="pooling")
    return PoolingParams(
        pooling=_POOLING_NAMES.get(message.kind),
        normalize=message.is_normalized if message.HasField("is_normalized") else None,
        second_start=message.second_start,
    )


def beam_to_message(params: BeamParams) -> sampling_pb2.BeamSearch:
    """Return the wire form of `params`."""
    return sampling_pb2.BeamSearch(
        length_penalty=params.length_penalty,
        early_stopping=_STOPPING_TO_MESSAGE[params.early_stopping],
    )


def beam_from_message(message: sampling_pb2.BeamSearch) -> BeamParams:
    """Return the plain form. Raises InvalidRequestError naming the field."""
    if message.early_stopping not in _STOPPING_FROM_MESSAGE:
        raise InvalidRequestError(
            f"early_stopping has no value {message.early_stopping}", field="early_stopping"
        )
    has_penalty = message.HasField("length_penalty")
    return BeamParams(
        length_penalty=as_written(message.length_penalty) if has_penalty else 1.0,
        early_stopping=_STOPPING_FROM_MESSAGE[message.early_stopping],
    )


def as_written(value: float) -> float:
    """Return what a client wrote before it became a float32."""
    return float(f"{value:.7g}")
