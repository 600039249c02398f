"""Weights of a model: what identifies them, where they are from, and what an update asks for."""

import enum
from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import InvalidRequestError

MAX_LABEL: Final = 64
MAX_PATH: Final = 4096
SHOWN_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class WeightsVersion:
    """The weights that an answer is computed with.

    Attributes:
        fingerprint: SHA-256 over configuration and weights, 32 bytes.
        fingerprint_version: How the fingerprint was made.
        label: The operator's name for them; empty without one.
    """

    fingerprint: bytes
    fingerprint_version: int = 0
    label: str = ""

    def excludes(self, other: "WeightsVersion") -> bool:
        """Return whether `other` are different weights. Fingerprints that were made in two ways
        cannot be compared, and exclude nothing."""
        is_comparable = self.fingerprint_version == other.fingerprint_version
        return is_comparable and self.fingerprint != other.fingerprint

    @property
    def shown(self) -> str:
        """The version as it stands in answers: the label, or the beginning of the fingerprint."""
        return self.label or self.fingerprint[:SHOWN_BYTES].hex()


NO_WEIGHTS: Final = WeightsVersion(b"")
"""Of a peer that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsSource:
    """Where a worker has its weights from.

    Attributes:
        path: Folder on its host; empty for the model that it was started with.
        label: The operator's name for them; empty without one.
        serial: Grows with each update of the model; 0 for the model that it was started with.
    """

    path: str = ""
    label: str = ""
    serial: int = 0


@dataclass(frozen=True, slots=True)
class UpdateOrder:
    """An order to load other weights; `fingerprint` is what they have to be, empty for anything."""

    source: WeightsSource
    fingerprint: bytes = b""


STARTED: Final = WeightsSource()
"""The weights that a worker was started with."""


class UpdateMode(enum.Enum):
    """What becomes of requests that have begun when new weights come."""

    WAIT = "wait"  # they run to their end on the old weights first
    ABORT = "abort"  # they end with an error


def parse_update_mode(text: str) -> UpdateMode:
    """Return a mode by its name. Raises InvalidRequestError."""
    if text == "keep":
        raise InvalidRequestError(
            "mode: no answer is of two versions of the weights; wait lets requests that have begun "
            "run to their end first, abort ends them",
            field="mode",
        )
    try:
        return UpdateMode(text)
    except ValueError:
        raise InvalidRequestError(
            f"mode must be wait or abort, not {text[:32]!r}", field="mode"
        ) from None


def check_path(path: str) -> str:
    """Return the folder of an update, "" for the first weights. Raises InvalidRequestError."""
    if path and not path.startswith("/"):
        raise InvalidRequestError("path must begin with /: workers have it open", field="path")
    if len(path) > MAX_PATH or "\0" in path:
        raise InvalidRequestError(f"path has more than {MAX_PATH} characters", field="path")
    return path


def check_label(label: str) -> str:
    """Return the name of a version. Raises InvalidRequestError."""
    if len(label) > MAX_LABEL or not (label.isascii() and label.isprintable()):
        raise InvalidRequestError(
            f"version is at most {MAX_LABEL} printable ASCII characters", field="version"
        )
    return label
