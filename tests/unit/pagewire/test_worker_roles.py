"""Workers of one role each, and what the scheduler is told of them."""

from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from pagewire.config import ServeConfig, config_from_keywords
from pagewire.local.layout import ChildSpec, Endpoints, plan_children, threads_per_worker
from pagewire.models import ServedModel
from pagewire_scheduler.config import SchedulerConfig
from pagewire_scheduler.core.data.settings import HandoffPolicy, PolicyName
from pagewire_scheduler.service import create_loop
from pagewire_shared.errors import StartupError

FOLDER = Path("/run/x")


def plan(config: ServeConfig, *paths: str) -> dict[str, ChildSpec]:
    models = [ServedModel(f"m{index}", path) for index, path in enumerate(paths)]
    children = plan_children(config, models, FOLDER, Endpoints("", 0, 0, "/run/x/grpc.sock"))
    return {spec.name: spec for spec in children}


def value(spec: ChildSpec, flag: str) -> str:
    return spec.arguments[spec.arguments.index(flag) + 1]


def test_each_worker_has_one_role(tmp_path: Path) -> None:
    config = config_from_keywords({"prefill_workers": 1, "decode_workers": 2}, {}).config
    specs = plan(config, str(tmp_path), "org/b")
    workers = [spec for spec in specs.values() if spec.role == "worker"]
    assert [spec.name for spec in workers] == [f"worker-{index}" for index in range(6)]
    assert [value(spec, "--roles") for spec in workers] == ["prefill", "decode", "decode"] * 2
    assert [value(spec, "--model") for spec in workers] == [str(tmp_path)] * 3 + ["org/b"] * 3
    assert {value(spec, "--cpu-threads") for spec in workers} == {str(threads_per_worker(6))}
    assert not any("--roles" in spec.arguments for spec in plan(ServeConfig(), "a").values())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prefill_workers": 1}, "^--prefill-workers: needs --decode-workers"),
        ({"decode_workers": 1}, "^--decode-workers: needs --prefill-workers"),
        (
            {"prefill_workers": 1, "decode_workers": 1, "num_workers": 2},
            "^--prefill-workers: takes the place of --num-workers",
        ),
    ],
)
def test_incomplete_roles_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(StartupError, match=message):
        config_from_keywords(given, {})


def test_the_handoff_setting_reaches_the_scheduler(tmp_path: Path) -> None:
    specs = plan(ServeConfig(handoff="always"), str(tmp_path))
    assert value(specs["scheduler"], "--handoff") == "always"
    assert "--handoff" not in plan(ServeConfig(), str(tmp_path))["scheduler"].arguments


@pytest.mark.parametrize("handoff", ["auto", "always", "never"])
async def test_the_handoff_setting_reaches_the_core(handoff: str) -> None:
    assert create_loop(SchedulerConfig(handoff=handoff)).core.settings.handoff == handoff


def test_the_core_knows_the_choices_of_the_scheduler() -> None:
    choices = {item.name: item.metadata["choices"] for item in fields(SchedulerConfig)}
    assert choices["queue_policy"] == get_args(PolicyName)
    assert choices["handoff"] == get_args(HandoffPolicy)
