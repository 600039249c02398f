"""What a store leaves on disk is for its own user, whatever the umask and whoever made it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagewire_kvstore.tiers.disk.files import DiskFiles
from pagewire_kvstore.tiers.record_codec import encode_record
from pagewire_shared.kv.arena import Arena
from support.processes.disk_blocks import block_record


@pytest.fixture(autouse=True)
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Return the modes of all files below `folder`, and its folders as well."""
    paths = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in paths}


def fill(files: DiskFiles) -> None:
    """Leave a block, one in quarantine, and one that is being written."""
    for number in range(2):
        record = block_record(number)
        files.publish(files.write_temp(encode_record(record), record, 1.0, sync=False), record.key)
    files.quarantine(block_record(0).key, 1.0)
    record = block_record(2)
    files.write_temp(encode_record(record), record, 1.0, sync=True)
    files.try_write(100)


def check_closed(folder: Path) -> None:
    found = modes(folder)
    assert sum((folder / name).is_file() for name in found) >= 4
    for name, mode in found.items():
        assert mode == (0o600 if (folder / name).is_file() else 0o700), (name, oct(mode))


def test_new_files_and_folders_are_private(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path / "kv")
    fill(files)
    check_closed(tmp_path / "kv")
    files.close()


def test_files_of_an_older_version_become_private(tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    files = DiskFiles(folder)
    fill(files)
    files.close()
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    files = DiskFiles(folder)
    assert len([found for found in files.scan() if found is not None]) == 1
    open_files = {
        name: oct(mode)
        for name, mode in modes(folder).items()
        if mode & 0o077 and name.startswith(("blocks", "temp"))
    }
    assert not open_files
    assert modes(folder)["quarantine"] == 0o700
    files.close()


def test_the_mode_of_a_shared_folder_is_kept(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    DiskFiles(tmp_path).close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert modes(tmp_path)["blocks"] == 0o700


def test_the_arena_file_is_private(tmp_path: Path) -> None:
    arena = Arena(1 << 20, tmp_path / "kv.arena")
    assert stat.S_IMODE((tmp_path / "kv.arena").stat().st_mode) == 0o600
    arena.close()
