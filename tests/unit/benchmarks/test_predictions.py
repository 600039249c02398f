"""Predictions for a card: bounds where nothing is lost, what they grow with, and their sources."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from bounds import decode_bytes, job_seconds, prefill_seconds
from jobs import nano_vllm_job
from prediction.cards import CARDS
from prediction.costs import BEST, EXPECTED, NONE, WORST
from prediction.exact_mode import tile_columns
from prediction.host_figures import HostStep, load
from prediction.job_time import job_rate
from prediction.kernels import SPLIT, Step, num_launches, step_kernels
from prediction.rows import predict
from prediction.step_time import MEASURED_STEPS, Model
from prediction.table import against, all_cards, host_table, markdown, source
from shapes import SHAPES

from pagewire_worker.triton_kernels.paged_sequences import SplitPlan
from pagewire_worker.triton_kernels.tile_matmul import Tile

from .conftest import BENCHMARKS

SMALL, LARGE = SHAPES["qwen3-0.6b"], SHAPES["qwen3-8b"]
H200 = CARDS["h200"]
FIGURES = load()
PAGE = BENCHMARKS.parent / "docs" / "gpu" / "predictions.md"
HIGHER_IS_BETTER = ("1", "2", "4", "5")
LOWER_IS_BETTER = ("6", "7", "8")

NUM_PRODUCTS = 4
"""Of a layer."""


@functools.cache
def predicted(name):
    """Return the rows of a card. Some seconds: not while tests are collected."""
    return predict(CARDS[name], FIGURES)


def faster(card, copy=1.0, products=1.0):
    limits = replace(
        card.limits, copy=card.limits.copy * copy, products=card.limits.products * products
    )
    return replace(card, limits=limits)


@pytest.mark.parametrize("name", CARDS)
def test_every_row_is_there_and_no_row_beats_its_limit(name):
    found = predicted(name)
    assert list(found) == [str(number) for number in range(1, 13)]
    for row in found.values():
        assert 0 <= row.low <= row.expected <= row.high
        assert row.goal > 0
        assert row.note
        assert row.unit
    assert found["1"].low < found["1"].expected < found["1"].high
    for number in (*HIGHER_IS_BETTER, "3", "9", "12"):
        assert found[number].high <= found[number].limit
    for number in LOWER_IS_BETTER:
        assert found[number].low >= found[number].limit


def test_limits_and_goals_are_those_of_the_goals():
    found = predicted("h200")
    assert found["1"].limit == pytest.approx(36_409, rel=1e-4)
    assert found["2"].limit == pytest.approx(13_008, rel=1e-4)
    assert found["6"].limit == pytest.approx(4.93, rel=2e-3)
    assert found["8"].limit == pytest.approx(37.7, rel=2e-3)
    assert found["12"].limit == pytest.approx(1.93, rel=2e-3)
    assert [found[number].goal for number in ("1", "4", "6")] == [26_000, 240, 6.2]
    slower = predicted("l40s")
    assert slower["1"].goal / slower["1"].limit == pytest.approx(26_000 / found["1"].limit)


@pytest.mark.parametrize(
    ("batch", "context", "milliseconds"),
    [(1, 1024, 0.305), (16, 1024, 0.714), (64, 1024, 2.03), (1, 4096, 0.386), (16, 4096, 2.03)],
)
def test_without_overheads_a_step_is_its_bytes(batch, context, milliseconds):
    model = Model(SMALL, H200, NONE, FIGURES)
    found = model.device_seconds(Step(num_decodes=batch, num_context=batch * context))
    assert found == pytest.approx(milliseconds * 1e-3, rel=5e-3)
    exact = decode_bytes(SMALL, [context] * batch) / H200.limits.copy
    assert found == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("length", [2048, 8192])
def test_without_overheads_a_prompt_is_its_operations(length):
    model = Model(LARGE, H200, NONE, FIGURES)
    found = model.device_seconds(Step(prompts=(length,)), is_graph=False)
    assert found == pytest.approx(prefill_seconds(LARGE, length, H200.limits), rel=1e-2)


def test_without_overheads_the_job_takes_its_bound():
    # Products so fast that none takes longer than its bytes, as the bound has it for decodes. Noise
    # for samples is in no bound.
    card = faster(H200, products=100)
    job = nano_vllm_job()
    for shape in (SMALL, LARGE):
        bound = job_seconds(shape, job.prompt_lens, job.output_lens, card.limits)
        rate = job_rate(Model(shape, card, NONE, FIGURES))
        assert rate == pytest.approx(job.num_output_tokens / bound, rel=2e-2)


def test_faster_memory_and_products_help():
    usual = predicted("h200")
    for card in (faster(H200, copy=1.5), faster(H200, products=1.5)):
        found = predict(card, FIGURES)
        assert all(found[n].expected >= usual[n].expected for n in HIGHER_IS_BETTER)
        assert all(found[n].expected <= usual[n].expected for n in LOWER_IS_BETTER)
    more_memory = predict(faster(H200, copy=1.5), FIGURES)
    assert all(more_memory[n].expected > usual[n].expected for n in HIGHER_IS_BETTER)
    more_products = predict(faster(H200, products=1.5), FIGURES)
    assert more_products["8"].expected < usual["8"].expected


def test_a_slow_host_decides_short_prompts_and_not_large_steps():
    steps = {
        name: replace(step, python_us=step.python_us * 4, layer_us=step.layer_us * 4)
        for name, step in FIGURES.steps.items()
    }
    usual, slow = predicted("h200"), predict(H200, replace(FIGURES, steps=steps))
    assert slow["7"].expected > 1.5 * usual["7"].expected
    assert slow["6"].expected == usual["6"].expected


def test_cards_say_what_they_cannot():
    found = predicted("4090")
    assert "sequences would wait" in found["2"].note
    assert "wait" not in found["1"].note
    assert predicted("a100-80g")["12"].expected == 1


def test_the_host_pays_for_layers_that_are_launched_one_by_one():
    many = replace(SMALL, layers=2 * SMALL.layers)
    graph, prompt = Step(num_decodes=1, num_context=640), Step(prompts=(128,))
    usual, longer = (Model(shape, H200, EXPECTED, FIGURES) for shape in (SMALL, many))
    assert longer.host_seconds(graph) == usual.host_seconds(graph)
    added = longer.host_seconds(prompt) - usual.host_seconds(prompt)
    assert added > SMALL.layers * 5 * EXPECTED.launch_us * 1e-6
    assert added < usual.host_seconds(prompt)


def test_costs_are_in_order():
    step = Step(num_decodes=64, num_context=64 * 640)
    best, expected, worst = (
        Model(LARGE, H200, costs, FIGURES) for costs in (BEST, EXPECTED, WORST)
    )
    assert best.device_seconds(step) < expected.device_seconds(step) < worst.device_seconds(step)
    assert best.host_seconds(step) < expected.host_seconds(step) < worst.host_seconds(step)


def test_tiles_and_splits_are_those_of_the_kernels():
    assert SplitPlan().split == SPLIT
    for outputs in (512, 1024, 4096, 6144, 12288, 24576, 151936):
        assert tile_columns(outputs) == Tile.of(torch.bfloat16, outputs).columns


@pytest.fixture(scope="module")
def counted():
    """What steps of a model with two layers ask a device for, counted in a process of its own:
    tests of this one interpret kernels."""
    program = (
        "import json, dataclasses, shapes\n"
        "from prediction.host_steps import count_steps\n"
        "shape = dataclasses.replace(shapes.SHAPES['qwen3-0.6b'], layers=2)\n"
        "steps = count_steps(shape)\n"
        "print(json.dumps({name: dataclasses.asdict(step) for name, step in steps.items()}))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(BENCHMARKS / "gpu")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name: HostStep(**step) for name, step in json.loads(done.stdout).items()}


def test_every_kind_of_step_was_measured():
    assert set(FIGURES.steps) == set(MEASURED_STEPS)
    for step in FIGURES.steps.values():
        assert step.python_us > 0


@pytest.mark.parametrize("name", MEASURED_STEPS)
def test_kernels_of_a_step_are_those_that_the_worker_starts(name, counted):
    for found, layers in ((counted[name], 2), (FIGURES.steps[name], FIGURES.layers)):
        shape = replace(SMALL, layers=layers)
        inside = found.graph_launches if found.graphs else 0
        assert found.launches + inside == num_launches(step_kernels(shape, MEASURED_STEPS[name]))
        assert found.products == (1 if found.graphs else NUM_PRODUCTS * layers + 1)


@pytest.mark.parametrize("name", MEASURED_STEPS)
def test_figures_of_the_host_are_those_of_this_code(name, counted):
    kept, found = FIGURES.steps[name], counted[name]
    assert (kept.operators, kept.copies, kept.graphs) == (
        found.operators,
        found.copies,
        found.graphs,
    ), "measure anew: predict.py --measure-host"


def test_the_page_has_what_is_predicted():
    page = PAGE.read_text()
    assert source(H200, FIGURES) in page
    assert markdown(predicted("h200")) in page
    assert host_table(FIGURES) in page
    assert all_cards({card.name: predicted(name) for name, card in CARDS.items()}) in page


def test_what_was_seen_stands_beside_what_was_expected():
    found = predicted("h200")
    seen = {"1": found["1"].expected, "6": 2 * found["6"].high}
    lines = against(found, seen).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| 1 |")
    assert lines[2].endswith("| 1 | yes |")
    assert lines[3].endswith("| no |")


def test_rows_for_programs_need_no_torch(tmp_path):
    program = (
        "import runpy, sys\n"
        "sys.modules['torch'] = None\n"
        "runpy.run_path('predict.py', run_name='__main__')\n"
    )
    path = tmp_path / "rows.json"
    subprocess.run(
        [sys.executable, "-c", program, "--card", "h100", "--json", path],
        cwd=BENCHMARKS / "gpu",
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS / "gpu")},
        timeout=60,
        check=True,
    )
    written = json.loads(path.read_text())
    assert written["card"] == "H100 SXM"
    names = {"expected", "low", "high", "unit", "goal", "limit", "note"}
    assert all(names <= set(row) for row in written["rows"].values())
    assert len(written["rows"]) == 12
