"""Adapters of a frontend: names, content, bounds, watched folders and allowed paths."""

import asyncio
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pagewire_frontend.adapters.allowed_paths import AllowedPaths
from pagewire_frontend.adapters.calls import AdapterCalls
from pagewire_frontend.adapters.content_service import served
from pagewire_frontend.adapters.folder_watch import FolderWatch
from pagewire_frontend.adapters.registry import AdapterRegistry, check_rank
from pagewire_frontend.adapters.store import ContentFolder
from pagewire_protos.worker.v1 import adapter_content_pb2 as pb
from pagewire_protos.worker.v1 import adapter_content_pb2_grpc
from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.flag_values import parse_modules
from pagewire_shared.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    StartupError,
)
from pagewire_shared.rpc.address import parse_address
from support.adapters.adapter_files import CONFIG, write_adapter

SIZE = 1 << 20


def written(folder: Path, number: int) -> Path:
    """An adapter whose content differs by its number."""
    return write_adapter(folder, {**CONFIG, "lora_alpha": number + 1})


def made(tmp_path: Path, max_bytes: int = SIZE, **fields: object) -> AdapterRegistry:
    store = ContentFolder(tmp_path / "store", max_bytes)
    return AdapterRegistry(store, models=["tiny"], taken_names=["tiny"], **fields)  # type: ignore[arg-type]


def test_a_name_stands_for_the_newest_content_and_streams_keep_theirs(tmp_path: Path) -> None:
    async def run() -> None:
        adapters = made(tmp_path, address="host:1")
        folder = written(tmp_path / "a", 1)
        first = await adapters.load("sql", folder)
        adapters.pin(first.use)  # as an open request does
        written(folder, 2)
        second = await adapters.load("sql", folder)
        assert first.use.adapter_id != second.use.adapter_id
        assert first.use.sources[1] == "grpc:host:1"
        kept = Path(first.use.sources[0].removeprefix("file:"))
        assert json.loads((kept / "adapter_config.json").read_text())["lora_alpha"] == 2
        assert adapters.find("sql") is second
        await adapters.unload("sql")
        assert adapters.find("sql") is None
        with pytest.raises(ModelNotFoundError):
            await adapters.unload("sql")

    asyncio.run(run())


def test_unused_content_makes_room_and_what_is_used_does_not(tmp_path: Path) -> None:
    async def run() -> None:
        folders = [written(tmp_path / f"a{number}", number) for number in range(3)]
        size = sum(path.stat().st_size for path in folders[0].iterdir())
        adapters = made(tmp_path, max_bytes=2 * size + size // 2)
        first = await adapters.load("a", folders[0])
        adapters.pin(first.use)
        await adapters.load("b", folders[1])
        with pytest.raises(OverloadedError, match="--lora-store-bytes"):
            await adapters.load("c", folders[2])
        await adapters.unload("b")
        await adapters.load("c", folders[2])
        assert adapters.store is not None
        assert adapters.store.num_bytes <= adapters.store.max_bytes
        await adapters.unload("a")
        assert adapters.store.find(first.use.adapter_id) is not None
        adapters.unpin(first.use)
        await adapters.load("b", folders[1])
        assert adapters.store.find(first.use.adapter_id) is None
        with pytest.raises(ModelNotFoundError, match="was unloaded"):
            adapters.pin(first.use)

    asyncio.run(run())


def test_a_cancelled_load_leaves_nothing_unaccounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        adapters, folder = made(tmp_path), written(tmp_path / "a", 1)
        store, is_copying, may_end = adapters.store, threading.Event(), threading.Event()
        assert store is not None
        copy = store.copy

        def slow(*arguments: Any) -> None:
            is_copying.set()
            assert may_end.wait(10)
            copy(*arguments)

        monkeypatch.setattr(store, "copy", slow)
        load = asyncio.create_task(adapters.load("sql", folder))
        assert await asyncio.to_thread(is_copying.wait, 10)
        load.cancel()
        with pytest.raises(asyncio.CancelledError):
            await load
        may_end.set()
        await adapters.load("law", written(tmp_path / "b", 2))  # waits for the turn
        assert adapters.find("sql") is None
        copied = [path for path in store._folder.iterdir() if path.is_dir()]
        assert {path.name for path in copied} == {one.hex() for one in store._content}
        assert len(copied) == 2
        assert [one.num_pins for one in store._content.values()] == [0, 1]

    asyncio.run(run())


def test_files_are_removed_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        folders = [written(tmp_path / f"a{number}", number) for number in range(2)]
        size = sum(path.stat().st_size for path in folders[0].iterdir())
        adapters, threads = made(tmp_path, max_bytes=size + size // 2), []
        first = await adapters.load("a", folders[0])
        await adapters.unload("a")
        rmtree = shutil.rmtree

        def noted(path: Path, **options: Any) -> None:
            threads.append(threading.current_thread())
            rmtree(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr("pagewire_frontend.adapters.store.shutil.rmtree", noted)
            await adapters.load("b", folders[1])
        assert threads
        assert threading.main_thread() not in threads
        kept = Path(first.use.sources[0].removeprefix("file:"))
        assert kept.name not in os.listdir(kept.parent)

    asyncio.run(run())


def test_the_folder_goes_with_its_process_and_left_over_ones_too(tmp_path: Path) -> None:
    left = ContentFolder(tmp_path, SIZE)
    running = ContentFolder(tmp_path, SIZE)
    assert len(list(tmp_path.iterdir())) == 2
    left.close()
    (tmp_path / "frontend-killed").mkdir()
    (tmp_path / "frontend-killed" / "lock").touch()
    ContentFolder(tmp_path, SIZE).close()
    (only,) = tmp_path.iterdir()
    assert only == running._folder
    running.close()


@pytest.mark.parametrize("name", ["", "tiny", "x" * 256])
def test_names_that_cannot_be_had(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="lora_name"):
        asyncio.run(made(tmp_path).load(name, written(tmp_path / "a", 1)))


def test_broken_adapters_change_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        adapters = made(tmp_path)
        good = await adapters.load("a", written(tmp_path / "a", 1))
        write_adapter(tmp_path / "a", {**CONFIG, "use_dora": True})
        with pytest.raises(AdapterError):
            await adapters.load("a", tmp_path / "a")
        assert adapters.find("a") is good

    asyncio.run(run())


def test_ranks_are_those_of_the_workers(tmp_path: Path) -> None:
    check_rank("tiny", 64, None)
    check_rank("tiny", 16, 16)
    with pytest.raises(InvalidRequestError, match="--max-lora-rank"):
        check_rank("tiny", 17, 16)
    with pytest.raises(InvalidRequestError, match="--enable-lora"):
        check_rank("tiny", 1, 0)
    adapters = made(tmp_path)
    adapters.known_rank = lambda model: 2
    with pytest.raises(InvalidRequestError, match="rank 4"):
        asyncio.run(adapters.load("a", written(tmp_path / "a", 1)))


def test_a_watched_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        adapters, root = made(tmp_path), tmp_path / "watched"
        root.mkdir()
        watch = FolderWatch(str(root), adapters)
        written(root / "sql", 1)
        (root / "unfinished").mkdir()
        await watch.look()
        assert [one.name for one in adapters] == ["sql"]
        before = adapters.version
        await watch.look()
        assert adapters.version == before, "nothing has changed"
        written(root / "sql", 12)
        written(root / "law", 2)
        (root / "out").symlink_to(written(tmp_path / "elsewhere", 3))
        await watch.look()
        assert [one.name for one in adapters] == ["law", "sql"]
        assert "leaves the folder" in caplog.text
        shutil.rmtree(root / "sql")
        await watch.look()
        assert [one.name for one in adapters] == ["law"]

    asyncio.run(run())


def test_a_watched_folder_that_cannot_be_read_unloads_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        adapters, root = made(tmp_path), tmp_path / "watched"
        root.mkdir()
        watch = FolderWatch(str(root), adapters)
        written(root / "sql", 1)
        await watch.look()
        root.rename(tmp_path / "gone")
        await watch.look()
        assert [one.name for one in adapters] == ["sql"]
        assert "cannot be read" in caplog.text

    asyncio.run(run())


def test_an_adapter_without_room_is_tried_again(tmp_path: Path) -> None:
    async def run() -> None:
        adapters, root = made(tmp_path), tmp_path / "watched"
        root.mkdir()
        assert adapters.store is not None
        watch, max_bytes = FolderWatch(str(root), adapters), adapters.store.max_bytes
        written(root / "sql", 1)
        adapters.store.max_bytes = 1
        await watch.look()
        assert [one.name for one in adapters] == []
        adapters.store.max_bytes = max_bytes
        await watch.look()
        assert [one.name for one in adapters] == ["sql"]

    asyncio.run(run())


def test_paths_lie_below_a_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    inner, other = written(root / "a", 1), tmp_path / "b"
    paths = AllowedPaths([str(root)], [written(other, 2)])
    assert paths.find(str(inner)) == (inner.resolve(), root.resolve())
    assert paths.find(str(other))[0] == other.resolve()
    (root / "link").symlink_to(tmp_path)
    for bad in (tmp_path, root / ".." / "c", root / "link" / "c", "root/a", "/\0"):
        with pytest.raises(InvalidRequestError) as refused:
            paths.find(str(bad))
        assert refused.value.field == "lora_path"
    with pytest.raises(StartupError, match="--lora-roots"):
        AllowedPaths([str(tmp_path / "none")], [])


@pytest.mark.parametrize(
    ("text", "name", "base"),
    [
        ("sql=/adapters/sql", "sql", ""),
        ('{"name": "sql", "path": "/adapters/sql", "base_model_name": "m"}', "sql", "m"),
    ],
)
def test_modules_of_the_flag(text: str, name: str, base: str) -> None:
    (module,) = parse_modules([text])
    assert (module.name, str(module.path), module.base_model) == (name, "/adapters/sql", base)


@pytest.mark.parametrize("text", ["sql", "=x", "a=", "{", "{}", '{"name": 1}', '{"nam": "a"}'])
def test_modules_that_are_refused(text: str) -> None:
    with pytest.raises(StartupError, match="--lora-modules"):
        parse_modules([text])
    with pytest.raises(StartupError, match="two adapters"):
        parse_modules(["a=/x", "a=/y"])


class Peer:
    """Another frontend, which notes what it is asked."""

    name = "b"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []

    async def set_adapter(self, name: str, path: str | None, root: str, base_model: str) -> None:
        self.asked.append((name, path))
        raise OverloadedError("away")  # which does not fail the call


def test_calls_reach_the_group(tmp_path: Path) -> None:
    async def run() -> None:
        peer, folder = Peer(), written(tmp_path / "a", 1)
        calls = AdapterCalls(made(tmp_path), AllowedPaths([str(tmp_path)], []), [peer])
        await calls.load("sql", str(folder))
        with pytest.raises(InvalidRequestError, match="load_inplace"):
            await calls.load("sql", str(folder))
        await calls.load("sql", str(folder), is_in_place=True)
        await calls.unload("sql")
        assert peer.asked == [("sql", str(folder))] * 2 + [("sql", None)]
        with pytest.raises(ModelNotFoundError, match="No adapter found"):
            await calls.load("x", str(tmp_path))

    asyncio.run(run())


def test_content_is_served_by_identity(tmp_path: Path) -> None:
    async def run() -> None:
        adapters, folder = made(tmp_path), written(tmp_path / "a", 1)
        use = (await adapters.load("sql", folder)).use
        address = parse_address(f"unix:{tmp_path}/content.sock", setting="--lora-listen")
        async with (
            served(adapters.store, address),
            grpc.aio.insecure_channel(str(address)) as channel,
        ):
            stub = adapter_content_pb2_grpc.AdapterContentServiceStub(channel)
            files: dict[str, bytes] = {}
            async for part in stub.FetchAdapter(pb.FetchAdapterRequest(adapter_id=use.adapter_id)):
                if part.HasField("file"):
                    name, files[part.file.name] = part.file.name, b""
                else:
                    files[name] += part.data
            assert files == {path.name: path.read_bytes() for path in folder.iterdir()}
            for unknown, status in ((b"x" * 32, "NOT_FOUND"), (b"x", "INVALID_ARGUMENT")):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.FetchAdapter(pb.FetchAdapterRequest(adapter_id=unknown)).read()
                assert refused.value.code().name == status

    asyncio.run(run())
