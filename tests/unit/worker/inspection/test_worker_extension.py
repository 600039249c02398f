"""Extensions of workers: which methods are public, what an object has, and refusals by name."""

import asyncio
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from pagewire_shared.errors import InternalError, InvalidRequestError, StartupError
from pagewire_worker.config import WorkerConfig
from pagewire_worker.extension.worker_extension import (
    RankFacts,
    WorkerExtension,
    public_methods,
    require_extension,
)
from pagewire_worker.inspection.worker_inspection import WorkerInspection
from pagewire_worker.runner.model_thread import ModelThread
from support.cells.worker_driver import load
from support.checkpoints.checkpoints import make_checkpoint

FACTS = RankFacts(
    rank=1,
    num_ranks=2,
    model_path=Path("m"),
    model_config={"hidden_size": 8},
    device=torch.device("cpu"),
    dtype=torch.float32,
)


class Base:
    def inherited(self) -> int:
        return 1


class Extension(Base):
    limit = 3

    class Inner:
        pass

    def __init__(self) -> None:
        self.seen = self.rank  # type: ignore[attr-defined]

    def describe(self, word: str, *, times: int = 1) -> list[Any]:
        return [word * times, self.seen, self.model_config["hidden_size"]]  # type: ignore[attr-defined]

    @staticmethod
    def plain() -> int:
        return 5

    def odd(self) -> object:
        return object()

    def long(self) -> str:
        return "x" * 70_000

    def fails(self) -> None:
        raise KeyError("gone")

    def _hidden(self) -> int:
        return 1


class Broken:
    def __init__(self, needed: int) -> None:
        pass

    def run(self) -> None:
        pass


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("my_extension")
    made.Extension, made.Broken, made.number = Extension, Broken, 4  # type: ignore[attr-defined]
    made.Empty = type("Empty", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_extension", made)


def test_public_methods_are_those_that_a_class_and_its_bases_define():
    assert public_methods(Extension) == {
        *("describe", "fails", "inherited", "long", "odd", "plain"),
    }


def test_an_object_has_the_facts_of_its_rank():
    extension = WorkerExtension("my_extension.Extension", FACTS)
    assert extension.call("describe", ["ab"], {"times": 2}) == ["abab", 1, 8]
    for method in ("_hidden", "__init__", "limit", "Inner", "nothing"):
        with pytest.raises(InvalidRequestError, match=f"no public method '{method}'; there are"):
            extension.call(method, [], {})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Extension", "is no MODULE.CLASS"),
        ("no_such_module.X", "No module named"),
        ("my_extension.Nothing", "no attribute 'Nothing'"),
        ("my_extension.number", "is no class"),
    ],
)
def test_a_class_that_cannot_be_found_ends_the_start(name: str, reason: str):
    with pytest.raises(StartupError, match=reason) as refused:
        require_extension(name)
    assert refused.value.field == "worker_extension_cls"
    require_extension("")
    require_extension("my_extension.Extension")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("Broken", "cannot be made: TypeError"), ("Empty", "has no public method")],
)
def test_a_class_that_cannot_be_made_ends_the_start(name: str, reason: str):
    with pytest.raises(StartupError, match=reason):
        WorkerExtension(f"my_extension.{name}", FACTS)


async def test_a_worker_of_one_rank_is_called_between_its_steps(tmp_path: Path):
    folder = make_checkpoint(tmp_path / "m", architecture="Qwen3ForCausalLM")
    thread = ModelThread(asyncio.get_running_loop())
    thread.start()

    async def call(inspection: WorkerInspection, method: str, **fields: Any) -> Any:
        fields = {"seconds": 5.0, "unique_reply_rank": None, **fields}
        args, kwargs = fields.pop("args", "[]"), fields.pop("kwargs", "{}")
        return await inspection.call(method, args, kwargs, **fields)

    try:
        replica = await asyncio.to_thread(load, folder, kv_cache_memory=1 << 22)
        plain = WorkerConfig(model=str(folder))
        with pytest.raises(InvalidRequestError, match="without --worker-extension-cls"):
            await call(WorkerInspection(plain, replica, thread), "plain")
        config = WorkerConfig(model=str(folder), worker_extension_cls="my_extension.Extension")
        inspection = WorkerInspection(config, replica, thread)
        assert await call(inspection, "describe", args='["a"]', kwargs='{"times": 3}') == [
            ["aaa", 0, replica.facts.model_config["hidden_size"]]
        ]
        assert await call(inspection, "plain", unique_reply_rank=0) == [5]
        with pytest.raises(InvalidRequestError, match="unique_reply_rank must be less than 1"):
            await call(inspection, "plain", unique_reply_rank=1)
        for method, reason in (
            ("fails", "rank 0: fails: KeyError: 'gone'"),
            ("odd", "rank 0: odd: TypeError: .* not JSON serializable"),
            ("long", "rank 0: long: ValueError: a reply of 70014 bytes is longer than 65536"),
        ):
            with pytest.raises(InternalError, match=reason):
                await call(inspection, method)
    finally:
        thread.stop(20)
