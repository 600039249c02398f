"""Which CUDA device each worker gets."""

from pathlib import Path

import pytest

from pagewire.config import config_from_keywords
from pagewire.local.devices import assign_devices, torch_has_cuda, visible_devices
from pagewire.local.layout import Endpoints, plan_children
from pagewire.models import ServedModel
from pagewire_shared.errors import StartupError


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("", ()),
        ("0", ("0",)),
        ("3, 1", ("3", "1")),
        ("0,0", ("0", "0")),
        ("GPU-8932f937,MIG-a/1/2", ("GPU-8932f937", "MIG-a/1/2")),
        ("1,-1,2", ("1",)),
        ("0,,2", ("0",)),
    ],
)
def test_the_variable_lists_the_visible_devices(listed: str, expected: tuple[str, ...]) -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": listed}) == expected


def test_without_the_variable_all_devices_are_visible(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert visible_devices({}, tmp_path) == ("0", "1")
    assert visible_devices({}, tmp_path / "none") == ()


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_every_worker_has_its_own_device(device: str) -> None:
    assert assign_devices(device, 2, ("4", "5", "6"), has_cuda=True) == ["4", "5"]


@pytest.mark.parametrize(
    ("device", "visible", "has_cuda"),
    [("cpu", ("0", "1"), True), ("auto", (), True), ("auto", ("0", "1"), False)],
)
def test_workers_on_the_cpu_have_no_device(
    device: str, visible: tuple[str, ...], has_cuda: bool
) -> None:
    assert assign_devices(device, 3, visible, has_cuda=has_cuda) == [None] * 3


@pytest.mark.parametrize(("device", "visible"), [("auto", ("0",)), ("cuda", ("0",))])
def test_too_few_devices_are_an_error(device: str, visible: tuple[str, ...]) -> None:
    with pytest.raises(StartupError, match=f"and {len(visible)} can be seen") as caught:
        assign_devices(device, 2, visible, has_cuda=True)
    assert caught.value.field == "--num-workers"


def test_no_device_is_an_error_of_its_own() -> None:
    with pytest.raises(StartupError, match="--device: no CUDA device can be seen here"):
        assign_devices("cuda", 2, (), has_cuda=True)


def test_workers_get_their_device_in_the_environment(tmp_path: Path) -> None:
    config = config_from_keywords({"num_workers": 2}, {}).config
    model = ServedModel("m", str(tmp_path))
    endpoints = Endpoints("", 0, 0, "/run/x/grpc.sock")
    children = plan_children(config, [model], tmp_path, endpoints, ["7", "1"])
    told = {child.name: dict(child.environ) for child in children if child.role == "worker"}
    assert told == {
        "worker-0": {"CUDA_VISIBLE_DEVICES": "7"},
        "worker-1": {"CUDA_VISIBLE_DEVICES": "1"},
    }
    assert not any("CUDA_VISIBLE_DEVICES" in c.environ for c in children if c.role != "worker")


def test_cuda_support_of_torch_is_detected_without_an_import() -> None:
    import torch

    assert torch_has_cuda() == (torch.version.cuda is not None)
