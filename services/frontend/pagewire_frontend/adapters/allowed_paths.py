"""The folders that adapters may come from: those of flags, and those below the roots. A path that
leaves its root through a link is refused."""

from collections.abc import Sequence
from pathlib import Path

from pagewire_shared.errors import InvalidRequestError, StartupError


class AllowedPaths:
    """The folders that callers may name."""

    def __init__(self, roots: Sequence[str], folders: Sequence[Path]) -> None:
        """Create the allowed paths.

        Args:
            roots: Folders below which all paths are allowed.
            folders: Single folders that are allowed, too.

        Raises:
            StartupError: A root is no folder.
        """
        self._roots = [Path(root).expanduser().resolve() for root in roots]
        self._folders = {folder.resolve() for folder in folders}
        for root in self._roots:
            if not root.is_dir():
                raise StartupError(f"--lora-roots: {root} is no folder", field="lora_roots")

    def find(self, text: str) -> tuple[Path, Path]:
        """Return the folder of an adapter, and the root that its links may lead to.

        Raises:
            InvalidRequestError: The path is relative, or lies below no root.
        """
        path = Path(text)
        if "\0" in text or not path.is_absolute():
            raise InvalidRequestError("lora_path must be an absolute path", field="lora_path")
        try:
            real = path.resolve()
        except (OSError, RuntimeError) as error:
            raise InvalidRequestError(f"lora_path: {error}", field="lora_path") from error
        for root in self._roots:
            if real.is_relative_to(root):
                return real, root
        if real in self._folders:
            return real, Path(real.anchor)  # the operator has named it
        raise InvalidRequestError(
            "lora_path lies below none of the folders that adapters may come from (--lora-roots)",
            field="lora_path",
        )
