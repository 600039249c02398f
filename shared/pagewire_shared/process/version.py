"""The version of Pagewire."""

from importlib import metadata


def package_version() -> str:
    """Return the version of the installed package."""
    try:
        return metadata.version("pagewire")
    except metadata.PackageNotFoundError:
        return "unknown"  # run from a source tree that is not installed
