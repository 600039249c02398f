"""Between generated messages and plain data: one pair of functions per type that two services
share."""

from pagewire_protos.common.v1 import audit_pb2, layout_pb2, sampling_pb2
from pagewire_shared import PROTOCOL_MAX, PROTOCOL_MIN
from pagewire_shared.beam import BeamParams
from pagewire_shared.errors import InvalidRequestError, PeerRefusedError
from pagewire_shared.sampling import SamplingParams

# Fields of the wire that this version refuses rather than ignores.
_UNSUPPORTED = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}

_STOPPING_TO_MESSAGE: dict[bool | None, sampling_pb2.EarlyStopping] = {
    False: sampling_pb2.EARLY_STOPPING_HEURISTIC,
    True: sampling_pb2.EARLY_STOPPING_FIRST,
    None: sampling_pb2.EARLY_STOPPING_NEVER,
}
_STOPPING_FROM_MESSAGE: dict[int, bool | None] = {
    sampling_pb2.EARLY_STOPPING_UNSPECIFIED: False,
    **{number: value for value, number in _STOPPING_TO_MESSAGE.items()},
}


def sampling_to_message(params: SamplingParams) -> sampling_pb2.SamplingParams:
    """Return the wire form of `params`; `n`, `best_of` and the texts stay behind with the frontend,
    and a beam search travels by itself."""
    return sampling_pb2.SamplingParams(
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        seed=params.seed,
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        ignore_eos=params.ignore_eos,
        stop_token_ids=params.stop_token_ids,
        logprobs=params.logprobs,
    )


def sampling_from_message(
    message: sampling_pb2.SamplingParams, *, defaults: SamplingParams
) -> SamplingParams:
    """Return `defaults` with every field that is present in `message`.

    Raises:
        InvalidRequestError: A value is out of bounds, or a field is not supported yet; names the
        field.
    """
    _refuse_unsupported(message)
    changes: dict[str, object] = {}
    for name in (
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "max_tokens",
        "min_tokens",
        "ignore_eos",
        "logprobs",
    ):
        if message.HasField(name):
            changes[name] = getattr(message, name)
    if message.stop_token_ids:
        changes["stop_token_ids"] = tuple(message.stop_token_ids)
    # float32 on the wire: 0.1 would come back as 0.10000000149.
    for name in ("temperature", "top_p", "min_p"):
        if name in changes:
            changes[name] = _as_written(getattr(message, name))
    return defaults.with_(**changes)


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
        length_penalty=_as_written(message.length_penalty) if has_penalty else 1.0,
        early_stopping=_STOPPING_FROM_MESSAGE[message.early_stopping],
    )


def _as_written(value: float) -> float:
    return float(f"{value:.7g}")


def _refuse_unsupported(message: sampling_pb2.SamplingParams) -> None:
    for name, neutral in _UNSUPPORTED.items():
        if message.HasField(name) and getattr(message, name) != neutral:
            raise InvalidRequestError(f"{name} is not supported yet", field=name)
    for name in ("logit_bias", "allowed_token_ids"):
        if getattr(message, name):
            raise InvalidRequestError(f"{name} is not supported yet", field=name)
    if message.HasField("prompt_logprobs"):
        raise InvalidRequestError("prompt_logprobs is not supported yet", field="prompt_logprobs")


def protocol_range() -> layout_pb2.ProtocolRange:
    """Return the versions this build speaks."""
    return layout_pb2.ProtocolRange(min=PROTOCOL_MIN, max=PROTOCOL_MAX)


def agree_protocol(peer: layout_pb2.ProtocolRange) -> int:
    """Return the highest version both speak. Raises PeerRefusedError when there is none."""
    version = min(PROTOCOL_MAX, peer.max)
    if version < max(PROTOCOL_MIN, peer.min) or version == 0:
        raise PeerRefusedError(
            f"protocol versions {peer.min} to {peer.max} are not spoken here, "
            f"only {PROTOCOL_MIN} to {PROTOCOL_MAX}",
            field="protocol",
        )
    return version


def finding(process: str, kind: str, detail: str) -> audit_pb2.AuditFinding:
    """Return an audit finding."""
    return audit_pb2.AuditFinding(process=process, kind=kind, detail=detail)
