"""What an installation lacks for a role, said in one line. Installs nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from pagewire_shared.errors import StartupError


@contextmanager
def needs_extra(role: str) -> Iterator[None]:
    """Import what only `pagewire[role]` brings, inside of this.

    Raises:
        StartupError: A package of others is not installed; names it, and what to install. One of
            ours that is not there is a fault of ours and stays a ModuleNotFoundError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package.startswith("pagewire"):
            raise
        raise StartupError(
            f"the package {package} is not installed; pip install 'pagewire[{role}]' brings what"
            f" a {role} needs"
        ) from error
