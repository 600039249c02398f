"""Turns refusals and errors of transformers into one sentence of a StartupError."""

from collections.abc import Iterator
from contextlib import contextmanager

from pagewire_shared.errors import StartupError

MAX_LENGTH = 300


class Refusal(Exception):
    """A model needs something that the paged KV cache or our attention cannot do."""


@contextmanager
def one_sentence(architecture: str) -> Iterator[None]:
    """Turn any exception into a StartupError that names the architecture and the reason."""
    try:
        yield
    except StartupError:
        raise
    except Refusal as error:
        raise StartupError(
            f"--model: {architecture} cannot be served: {error}", field="model"
        ) from error
    except Exception as error:
        # Foreign code reads a user's file: it may raise anything.
        raise StartupError(
            f"--model: transformers cannot load {architecture}: {_first_line(error)}", field="model"
        ) from error


def _first_line(error: Exception) -> str:
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    text = next((line for line in lines if line), "")
    text = text if len(text) <= MAX_LENGTH else text[:MAX_LENGTH] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
