"""Reports a missing package of a role in one line, with the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager

from pagewire_shared.errors import StartupError


@contextmanager
def needs_extra(role: str) -> Iterator[None]:
    """Context in which to import packages that only `pagewire[role]` installs.

    Raises:
        StartupError: A third-party package is not installed; names it and the extra. A missing
            module of Pagewire is a bug and stays a ModuleNotFoundError.
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
