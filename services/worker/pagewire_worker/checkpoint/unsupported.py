"""The error that sends a checkpoint from the native decoder to transformers."""

from pagewire_shared.errors import StartupError


class UnsupportedModelError(StartupError):
    """The checkpoint may be sound, but the native decoder does not compute what it asks for."""
