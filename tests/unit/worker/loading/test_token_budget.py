"""How many tokens a step on a CPU takes: formula, measurement, and the file it is kept in."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.host.kept_facts import cache_folder
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.loading import loader, token_budget
from pagewire_worker.loading.token_budget import StepTokens, calibrated_budget, choose_budget
from support.cells.worker_driver import load

MODEL = "a model, as it is"

FILE = "step_seconds.json"


@pytest.mark.parametrize(
    ("tokens_per_second", "shared", "most"),
    [
        (1, 64, 64),
        (320.1, 64, 160),
        (959.9, 64, 448),
        (960.1, 96, 480),
        (2000, 192, 992),
        (5200, 512, 1024),
        (1e9, 512, 1024),
    ],
)
def test_the_budget_is_what_a_step_of_fixed_length_computes(
    tokens_per_second: float, shared: int, most: int
) -> None:
    assert choose_budget(1 / tokens_per_second) == StepTokens(shared, most)


class TimedBackend:
    """Takes as long for a step as it is told, by a clock of its own."""

    def __init__(self, kernel_set: str = "made-up") -> None:
        self.kernel_set = kernel_set
        self.embedding_size = 64
        shape = CacheShape(1, 1, 16, None)
        self.kv_cache = KvCache(
            shape=shape,
            num_blocks=16,
            block_size=16,
            device=torch.device("cpu"),
            dtype=torch.float32,
        )
        self.now = 0.0
        self.seconds: list[float] = []
        self.batches: list[StepBatch] = []

    def forward(self, batch: StepBatch) -> None:
        self.batches.append(batch)
        self.now += self.seconds[(len(self.batches) - 1) % len(self.seconds)]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> TimedBackend:
    made = TimedBackend()
    clock = SimpleNamespace(perf_counter=lambda: made.now)
    monkeypatch.setattr(token_budget, "time", clock)
    return made


@pytest.fixture
def budget_of(backend: TimedBackend, tmp_path: Path) -> Callable[..., int]:
    """Return a function that starts a worker whose steps of 128 tokens take so many seconds."""

    def start(*seconds: float) -> int:
        backend.seconds = list(seconds)
        backend.batches = []
        return calibrated_budget(backend, MODEL, 2048, tmp_path / "cache").shared

    return start


def test_the_measurement_is_a_prompt_in_the_first_blocks(
    backend: TimedBackend, budget_of: Callable[..., int]
) -> None:
    assert budget_of(0.5, 0.125) == 96
    for batch in backend.batches:
        assert batch.positions.tolist() == batch.slot_mapping.tolist() == list(range(128))
        assert batch.attention.block_tables.tolist() == [list(range(8))]
        assert batch.attention.seq_lens.tolist() == [128]
        assert batch.output_rows.tolist() == [127]


def test_a_short_context_is_measured_within_it(backend: TimedBackend, tmp_path: Path) -> None:
    backend.seconds = [0.125]
    assert calibrated_budget(backend, MODEL, 64, tmp_path).shared == 64
    assert {len(batch.token_ids) for batch in backend.batches} == {64}


def test_weights_that_are_stored_otherwise_are_measured_anew(
    backend: TimedBackend, tmp_path: Path
) -> None:
    budgets = []
    for model, seconds in (("one int8", 0.0625), ("one none", 0.125), ("two none", 0.25)):
        backend.seconds = [seconds]
        budgets.append(calibrated_budget(backend, model, 2048, tmp_path).shared)
    assert budgets == [192, 96, 64]


def test_a_quick_measurement_is_repeated_and_the_best_one_counts(
    backend: TimedBackend, budget_of: Callable[..., int]
) -> None:
    assert budget_of(0.125) == 96
    # Somebody else has the cores now.
    assert budget_of(0.1875) == 96
    assert len(backend.batches) == 2
    assert budget_of(0.0625) == 192
    assert budget_of(0.125) == 192


def test_a_slow_measurement_is_made_once(
    backend: TimedBackend, budget_of: Callable[..., int]
) -> None:
    assert budget_of(0.25) == 64
    assert len(backend.batches) == 2
    assert budget_of(0.0625) == 64
    assert backend.batches == []


def test_another_model_is_measured_anew(
    backend: TimedBackend, budget_of: Callable[..., int], tmp_path: Path
) -> None:
    budget_of(0.25)
    for name, value in (("kernel_set", "others"), ("embedding_size", 128)):
        setattr(backend, name, value)
        assert budget_of(0.125) == 96
    assert len(json.loads((tmp_path / "cache" / FILE).read_text())) == 3


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "17", "null", '{"KEY": 0.0}', '{"KEY": "fast"}', '{"KEY": -1.5}']
)
def test_a_file_of_no_use_is_measured_over(
    content: str, backend: TimedBackend, budget_of: Callable[..., int], tmp_path: Path
) -> None:
    budget_of(0.25)
    file = tmp_path / "cache" / FILE
    (key,) = json.loads(file.read_text())
    file.write_text(content.replace("KEY", key))
    assert budget_of(0.125) == 96
    assert json.loads(file.read_text()) == {key: 0.125 / 128}


def test_bytes_that_are_no_text_are_measured_over(
    backend: TimedBackend, budget_of: Callable[..., int], tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / FILE).write_bytes(b"\xff\xfe\x00")
    assert budget_of(0.125) == 96


def test_where_nothing_can_be_written_it_is_measured_each_time(
    backend: TimedBackend, budget_of: Callable[..., int], tmp_path: Path
) -> None:
    # A file where the folder would be stops root as well.
    (tmp_path / "cache").write_text("")
    assert budget_of(0.25) == 64
    assert budget_of(0.125) == 96
    assert (tmp_path / "cache").read_text() == ""


def test_a_user_without_a_home_is_measured_each_time(
    backend: TimedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that runs under any number."""

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for seconds, budget in ((0.25, 64), (0.125, 96)):
        backend.seconds = [seconds]
        assert calibrated_budget(backend, MODEL, 2048, cache_folder()).shared == budget


def test_nothing_else_is_left_in_the_folder(budget_of: Callable[..., int], tmp_path: Path) -> None:
    budget_of(0.125)
    budget_of(0.125)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [FILE]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StepTokens]]:
    """Budgets that are handed out instead of measured ones; taken from the end."""
    budgets: list[StepTokens] = []
    monkeypatch.setattr(loader, "calibrated_budget", lambda *given: budgets.pop())
    yield budgets
    assert budgets == []


@pytest.mark.parametrize(
    ("num_seqs", "shared", "most"), [(8, 96, 320), (200, 200, 320), (400, 400, 400)]
)
def test_every_sequence_gets_a_token(
    num_seqs: int, shared: int, most: int, measured: list[StepTokens], checkpoint: Any
) -> None:
    measured.append(StepTokens(96, 320))
    info = load(checkpoint("llama"), max_num_seqs=num_seqs).info
    assert (info.shared_step_tokens, info.max_num_batched_tokens) == (shared, most)


def test_the_flag_wins(measured: list[StepTokens], checkpoint: Any) -> None:
    info = load(checkpoint("llama"), max_num_seqs=40, max_num_batched_tokens=17).info
    assert (info.shared_step_tokens, info.max_num_batched_tokens) == (17, 17)


def test_a_loaded_model_is_measured_and_kept(
    checkpoint: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    info = load(checkpoint("llama"), max_num_seqs=8).info
    (seconds,) = json.loads((tmp_path / "pagewire" / FILE).read_text()).values()
    found = StepTokens(info.shared_step_tokens, info.max_num_batched_tokens)
    assert found == choose_budget(seconds)
