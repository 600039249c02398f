"""Checkpoints that come tensor by tensor: what is written, and what is refused."""

import asyncio
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pagewire.client import weights_client
from pagewire_frontend.grpc_api.tensor_service import TensorCall
from pagewire_frontend.weights import inbox as inbox_module
from pagewire_frontend.weights.inbox import WeightsInbox
from pagewire_frontend.weights.shards import Tensor
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.errors import (
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    UnavailableError,
)

SMALL = Tensor("small", "F32", (2,))
TENSORS = {
    "a.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "b.weight": torch.arange(7, dtype=torch.bfloat16),
    "scale": torch.tensor(3.5, dtype=torch.float16),
    "flags": torch.tensor([True, False, True]),
    "large": torch.arange(300, dtype=torch.int64),
    "tail": torch.zeros(0, 4),
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"old weights")
    return folder


def stored_in(folder: Path) -> dict[str, torch.Tensor]:
    parts = sorted(folder.glob("*.safetensors"))
    return {name: tensor for part in parts for name, tensor in load_file(part).items()}


class Calls:
    """Notes updates; the weights of the last one do not do if `error` is set."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.error: Exception | None = None

    async def update(self, request: admin_pb2.UpdateWeightsRequest) -> list[object]:
        self.paths.append(Path(request.path))
        self.tensors = stored_in(self.paths[-1])
        if self.error is not None:
            raise self.error
        return []


class Models:
    def __init__(self, folder: Path) -> None:
        self.name, self.folder = "m", folder

    def find(self, name: str | None) -> "Models":
        return self


def call_of(tmp_path: Path, files: Path, max_bytes: int = 1 << 20) -> tuple[TensorCall, Calls]:
    calls = Calls()
    inbox = WeightsInbox(tmp_path / "inbox", max_bytes)
    return TensorCall(inbox, calls, Models(files).find), calls  # type: ignore[arg-type]


def messages(**changes: object):
    begin = admin_pb2.UpdateWeightsRequest(version="v")
    return weights_client._messages(begin, {**TENSORS, **changes}.items())


@pytest.mark.parametrize("bucket_bytes", [16, 100, 1 << 20])
async def test_tensors_arrive_as_they_were(
    tmp_path: Path, files: Path, bucket_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_client, "BUCKET_BYTES", bucket_bytes)
    call, calls = call_of(tmp_path, files)
    await call.run(messages())
    (path,) = calls.paths
    assert (path / "config.json").read_text() == "{}"
    assert not (path / "model.safetensors").exists()
    assert calls.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert calls.tensors[name].dtype == tensor.dtype
        assert torch.equal(calls.tensors[name], tensor), name


async def test_the_newest_checkpoint_is_kept_alone(tmp_path: Path, files: Path) -> None:
    call, calls = call_of(tmp_path, files)
    for _ in range(3):
        await call.run(messages())
    calls.error = UnavailableError("no memory")
    with pytest.raises(UnavailableError):
        await call.run(messages())
    assert list((tmp_path / "inbox").iterdir()) == [calls.paths[2]]


def bucket(*tensors: Tensor, data: bytes = b"") -> admin_pb2.StreamWeightsRequest:
    heads = [admin_pb2.TensorHead(name=t.name, dtype=t.dtype, shape=t.shape) for t in tensors]
    found = admin_pb2.TensorBucket(tensors=heads, data=data)
    return admin_pb2.StreamWeightsRequest(bucket=found)


BEGIN = admin_pb2.StreamWeightsRequest(begin=admin_pb2.UpdateWeightsRequest())
END = admin_pb2.StreamWeightsRequest(end=admin_pb2.TensorsEnd(num_tensors=1))
WHOLE = bucket(SMALL, data=bytes(8))


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ([WHOLE], "begin"),
        ([], "begin"),
        ([BEGIN, BEGIN], "begin"),
        ([BEGIN, WHOLE], "end"),
        ([BEGIN, END], "end.num_tensors"),
        ([BEGIN, bucket(SMALL, data=bytes(7)), END], "end.num_tensors"),
        ([BEGIN, bucket(SMALL, data=bytes(9))], "bucket.data"),
        ([BEGIN, bucket(data=bytes(1))], "bucket.data"),
        ([BEGIN, WHOLE, WHOLE], "tensors.name"),
        ([BEGIN, bucket(SMALL), bucket(Tensor("b", "F32", (1,)))], "bucket.tensors"),
        ([BEGIN, bucket(Tensor("", "F32", (1,)))], "tensors.name"),
        ([BEGIN, bucket(Tensor("a", "F31", (1,)))], "tensors.dtype"),
        ([BEGIN, bucket(Tensor("a", "F32", (1,) * 9))], "tensors.shape"),
        ([BEGIN, bucket(Tensor("a", "F32", (2**40, 2**40)))], "tensors.shape"),
        ([BEGIN, bucket(Tensor("a", "F32", (2**18 + 1,)))], "bucket.tensors"),
    ],
)
async def test_an_unfinished_or_wrong_checkpoint_changes_nothing(
    tmp_path: Path, files: Path, sent: list[admin_pb2.StreamWeightsRequest], field: str
) -> None:
    async def stream():
        for message in sent:
            yield message

    call, calls = call_of(tmp_path, files)
    with pytest.raises(InvalidRequestError) as caught:
        await call.run(stream())
    assert caught.value.field == field
    assert calls.paths == []
    assert not list((tmp_path / "inbox").glob("*")) + list((tmp_path / "inbox").glob(".*"))


async def test_one_checkpoint_at_a_time_and_none_for_ever(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagewire_frontend.grpc_api.tensor_service.SILENCE_SECONDS", 0.2)
    call, calls = call_of(tmp_path, files)

    async def silent():
        yield BEGIN
        await asyncio.Event().wait()

    first = asyncio.create_task(call.run(silent()))
    await asyncio.sleep(0.05)
    with pytest.raises(OverloadedError):
        await call.run(messages())
    with pytest.raises(DeadlineError):
        await first
    await call.run(messages())
    assert len(calls.paths) == 1


async def test_what_a_killed_process_left_is_removed(
    tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "inbox" / ".incoming-1"
    left.mkdir(parents=True)
    call, calls = call_of(tmp_path, files)
    await call.run(messages())
    assert left.exists(), "another frontend may be at it"
    monkeypatch.setattr(inbox_module, "LEFTOVER_SECONDS", 0.0)
    await call.run(messages())
    assert list((tmp_path / "inbox").iterdir()) == [calls.paths[1]]


async def test_a_frontend_without_a_folder_refuses(tmp_path: Path, files: Path) -> None:
    call = TensorCall(None, Calls(), Models(files).find)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="--weights-dir"):
        await call.run(messages())
