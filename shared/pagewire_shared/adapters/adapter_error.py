"""The error for an adapter that cannot be used, with the setting, tensor or file at fault."""

from dataclasses import dataclass

from pagewire_shared.errors import InvalidRequestError


@dataclass
class AdapterError(InvalidRequestError):
    """An adapter is broken, or needs what is not supported.

    Attributes:
        field: The setting of adapter_config.json, the tensor, or the file at fault.
    """

    code: str = "invalid_adapter"
