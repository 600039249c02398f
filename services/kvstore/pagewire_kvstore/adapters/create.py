"""Creates the keeper of adapters with what its disk has."""

from pathlib import Path

from pagewire_kvstore.adapters.blob_files import BlobFiles
from pagewire_kvstore.adapters.blob_keeper import BlobKeeper
from pagewire_kvstore.adapters.blob_memory import BlobMemory
from pagewire_shared.errors import StartupError


def create_keeper(disk_path: Path | None, max_bytes: int) -> BlobKeeper:
    """Return a keeper. It blocks.

    Args:
        disk_path: Folder of the disk tier, which this process has locked; None for memory.
        max_bytes: Most bytes of all content.

    Raises:
        StartupError: The folder cannot be used.
    """
    if disk_path is None:
        return BlobKeeper(BlobMemory(), max_bytes)
    try:
        files = BlobFiles(disk_path)
        return BlobKeeper(files, max_bytes, files.found)
    except OSError as error:
        raise StartupError(f"--disk-path: adapters: {error}", field="disk_path") from error
