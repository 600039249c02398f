"""Converts versions, sources and modes of weights to messages and back."""

from typing import Final

from pagewire_protos.common.v1 import weights_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.weights.version import UpdateMode, WeightsSource, WeightsVersion

_MODES: Final = {
    UpdateMode.WAIT: weights_pb2.UPDATE_MODE_WAIT,
    UpdateMode.ABORT: weights_pb2.UPDATE_MODE_ABORT,
}
_MODE_OF: Final[dict[int, UpdateMode]] = {
    weights_pb2.UPDATE_MODE_UNSPECIFIED: UpdateMode.WAIT,
    **{number: mode for mode, number in _MODES.items()},
}


def update_mode_to_message(mode: UpdateMode) -> "weights_pb2.UpdateMode":
    """Return the wire form."""
    return _MODES[mode]


def update_mode_from_message(number: int) -> UpdateMode:
    """Return a mode. Raises InvalidRequestError for an unknown one."""
    if number not in _MODE_OF:
        raise InvalidRequestError(f"mode {number} is not known", field="mode")
    return _MODE_OF[number]


def version_to_message(version: WeightsVersion) -> weights_pb2.WeightsVersion:
    """Return the wire form."""
    return weights_pb2.WeightsVersion(
        fingerprint=version.fingerprint,
        fingerprint_version=version.fingerprint_version,
        label=version.label,
    )


def version_from_message(message: weights_pb2.WeightsVersion) -> WeightsVersion:
    """Return the weights as plain data."""
    return WeightsVersion(message.fingerprint, message.fingerprint_version, message.label)


def source_to_message(source: WeightsSource) -> weights_pb2.WeightsSource:
    """Return the wire form."""
    return weights_pb2.WeightsSource(path=source.path, label=source.label, serial=source.serial)


def source_from_message(message: weights_pb2.WeightsSource) -> WeightsSource:
    """Return the source as plain data."""
    return WeightsSource(path=message.path, label=message.label, serial=message.serial)
