"""The error for an adapter that cannot be used, with the setting, tensor or file at fault."""

from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import InvalidRequestError

_MAX_MESSAGE: Final = 1000
_MAX_FIELD: Final = 200


@dataclass
class AdapterError(InvalidRequestError):
    """An adapter is broken, or needs what is not supported.

    Names out of its files may be long, and may have halves of surrogate pairs, which no message
    carries: both are mended here.

    Attributes:
        field: The setting of adapter_config.json, the tensor, or the file at fault.
    """

    code: str = "invalid_adapter"

    def __post_init__(self) -> None:
        self.message = _carried(self.message, _MAX_MESSAGE)
        self.field = None if self.field is None else _carried(self.field, _MAX_FIELD)


def _carried(text: str, most: int) -> str:
    return text[:most].encode("utf-8", "backslashreplace").decode()
