"""The arena's memory, and its file in the face of other processes, alive and dead."""

import errno
import mmap
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pagewire_shared.errors import StartupError
from pagewire_shared.kv.arena import Arena

CAPACITY_BYTES = 1024 * 1024

HOLDER = """
import sys, time
from pathlib import Path
from pagewire_shared.kv.arena import Arena
arena = Arena(int(sys.argv[2]), Path(sys.argv[1]))
arena.write(0, b"old")
print("holds", flush=True)
time.sleep(60)
"""

STARTER = """
import sys
from pathlib import Path
from pagewire_shared.kv.arena import Arena
from pagewire_shared.errors import StartupError
try:
    Arena(int(sys.argv[2]), Path(sys.argv[1]))
except StartupError as error:
    print(error, list(Path(sys.argv[1]).parent.iterdir()))
"""


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "kv.arena" if request.param == "file" else None


def test_written_bytes_can_be_read(path: Path | None) -> None:
    with Arena(CAPACITY_BYTES, path) as arena:
        view = arena.view(100, 5)
        assert view == bytes(5)
        arena.write(100, b"hello")
        arena.write(CAPACITY_BYTES - 3, memoryview(b"end"))
        assert view == b"hello"
        assert arena.view(CAPACITY_BYTES - 3, 3) == b"end"
        view.release()


def test_items_of_any_size_are_bytes(path: Path | None) -> None:
    with Arena(CAPACITY_BYTES, path) as arena:
        arena.write(8, memoryview(b"abcdefgh").cast("I"))
        assert bytes(arena.view(8, 8)) == b"abcdefgh"


def test_readers_cannot_write(path: Path | None) -> None:
    with Arena(CAPACITY_BYTES, path) as arena, arena.view(0, 5) as view:
        assert view.readonly


@pytest.mark.parametrize("offset", [-1, CAPACITY_BYTES - 2, CAPACITY_BYTES + 5])
def test_accesses_out_of_range_are_refused(path: Path | None, offset: int) -> None:
    with Arena(CAPACITY_BYTES, path) as arena:
        with pytest.raises(AssertionError):
            arena.write(offset, b"abc")
        with pytest.raises(AssertionError):
            arena.view(offset, 3)


def test_views_outlive_the_arena(path: Path | None) -> None:
    arena = Arena(CAPACITY_BYTES, path)
    arena.write(7, b"still here")
    view = arena.view(7, 10)
    arena.close()
    assert view == b"still here"
    assert path is None or not path.exists()


def test_pages_are_touched_at_the_start(path: Path | None) -> None:
    capacity_bytes = 16 * 1024 * 1024
    with Arena(capacity_bytes, path) as arena:
        before = resource.getrusage(resource.RUSAGE_SELF)
        for offset in range(0, capacity_bytes, mmap.PAGESIZE):
            view = arena.view(offset, 1)
            assert not view[0]
            view.release()
        after = resource.getrusage(resource.RUSAGE_SELF)
    num_faults = after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt
    assert num_faults < capacity_bytes / mmap.PAGESIZE / 10


def test_the_file_is_private_and_fully_allocated(tmp_path: Path) -> None:
    path = tmp_path / "kv.arena"
    before = os.umask(0)
    try:
        arena = Arena(CAPACITY_BYTES, path)
    finally:
        os.umask(before)
    status = path.stat()
    assert status.st_mode & 0o777 == 0o600
    assert status.st_size == CAPACITY_BYTES
    assert status.st_blocks * 512 >= CAPACITY_BYTES
    arena.close()
    assert not path.exists()


def test_the_file_of_a_living_process_is_left_alone_and_of_a_dead_one_replaced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "kv.arena"
    command = [sys.executable, "-c", HOLDER, str(path), str(CAPACITY_BYTES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"holds\n"
            with pytest.raises(StartupError, match="another process holds"):
                Arena(2 * CAPACITY_BYTES, path)
            assert path.read_bytes()[:3] == b"old"
        finally:
            holder.kill()
    assert path.exists()
    with Arena(2 * CAPACITY_BYTES, path) as arena:
        assert arena.view(0, 3) == bytes(3)
        assert path.stat().st_size == 2 * CAPACITY_BYTES
    assert not path.exists()


def test_close_keeps_the_file_of_a_successor(tmp_path: Path) -> None:
    path = tmp_path / "kv.arena"
    first = Arena(CAPACITY_BYTES, path)
    path.unlink()
    second = Arena(CAPACITY_BYTES, path)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


def test_full_memory_is_an_error_at_start(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or sys.platform != "linux":
        pytest.skip("mounting a small tmpfs takes unshare of util-linux")
    mount = f"mount -t tmpfs -o size=1m tmpfs '{tmp_path}'"
    prefix = [unshare, "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*prefix, mount], capture_output=True, check=False).returncode:
        pytest.skip("this host lets no user namespace mount a tmpfs")
    script = [*prefix, f'{mount} && exec "$@"', "sh", sys.executable, "-c", STARTER]
    done = subprocess.run(
        [*script, str(tmp_path / "kv.arena"), str(2 * CAPACITY_BYTES)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert "no room for an arena of 2097152 bytes: No space left on device" in done.stdout
    assert done.stdout.endswith(" []\n"), "a file was left behind"


def test_a_file_system_without_room_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: int, offset: int, num_bytes: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", fail, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(StartupError, match="no room for an arena"):
        Arena(CAPACITY_BYTES, tmp_path / "kv.arena")
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_host_has_is_refused_before_it_is_touched(path: Path | None) -> None:
    with pytest.raises(StartupError, match="larger than the host's memory"):
        Arena(1 << 60, path)
    assert path is None or not path.exists()


def test_other_files_are_never_replaced(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    link = tmp_path / "link.arena"
    link.symlink_to(thesis)
    folder = tmp_path / "folder.arena"
    folder.mkdir()
    pipe = tmp_path / "pipe.arena"
    os.mkfifo(pipe)
    for path, message in (
        (thesis, "ends with .arena"),
        (link, "cannot create"),
        (folder, "cannot create"),
        (pipe, "not a regular file"),
        (tmp_path / "nowhere" / "kv.arena", "cannot create"),
    ):
        with pytest.raises(StartupError, match=message):
            Arena(CAPACITY_BYTES, path)
    assert thesis.read_text() == "years of work"
    assert len(list(tmp_path.iterdir())) == 4
