"""Notes which tensors of a checkpoint were requested: one that never is would be left out."""

from collections.abc import Callable, Collection
from pathlib import Path

from pagewire_shared.errors import StartupError

IGNORED_SUFFIXES = (".rotary_emb.inv_freq", ".masked_bias")
"""Ends of the names of buffers that old checkpoints store and that are never read."""


class RequestedTensors:
    """The names of a checkpoint's tensors, and which of them were not requested yet.

    Args:
        folder: Of the checkpoint, for messages.
        on_progress: Called with the fraction of tensors requested.
    """

    def __init__(
        self, folder: Path, names: Collection[str], on_progress: Callable[[float], None]
    ) -> None:
        self._folder = folder
        self._names = names
        self._on_progress = on_progress
        self._left = set(names)
        self._by_begin: dict[str, list[str]] = {}

    @property
    def left(self) -> list[str]:
        """Names that were not requested so far, by alphabet."""
        return sorted(self._left)

    def check(self, name: str) -> None:
        """Raise StartupError if there is no such tensor."""
        if name not in self._names:
            raise StartupError(f"{self._folder} lacks the tensor {name}", field="model")

    def note(self, name: str) -> None:
        """Note that a tensor was requested."""
        self._left.discard(name)
        self._on_progress(1.0 - len(self._left) / len(self._names))

    def ignore(self, name: str) -> None:
        """Accept that `name` may be stored without being requested.

        With a dot at its end, it stands for all tensors whose names begin with it.
        """
        self._left.discard(name)
        if name.endswith("."):
            self._left -= set(self._beginning_with(name))

    def _beginning_with(self, begin: str) -> list[str]:
        """Return all names with such a begin; there may be many begins, such as experts."""
        if not self._by_begin:
            for name in self._names:
                for place, letter in enumerate(name):
                    if letter == ".":
                        self._by_begin.setdefault(name[: place + 1], []).append(name)
        return self._by_begin.get(begin, [])

    def finish(self) -> None:
        """Raise StartupError if a stored tensor was not requested."""
        unknown = [name for name in self.left if not name.endswith(IGNORED_SUFFIXES)]
        if unknown:
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            raise StartupError(
                f"{self._folder} holds tensors that its architecture does not have: "
                f"{', '.join(unknown[:3])}{more}",
                field="model",
            )
