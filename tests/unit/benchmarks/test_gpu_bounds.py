"""What figures of benchmarks/gpu are measured against: the job, its bound, floors, idle time."""

import json
import math
from argparse import Namespace
from dataclasses import replace

import pytest
import torch
from bounds import decode_bytes, job_seconds, prefill_seconds
from decode_steps import EXACT_NAME, compared
from idle import idle_of
from jobs import nano_vllm_job
from limits import Limits
from report import Report, shown
from shapes import SHAPES, TOY, write_checkpoint

from pagewire_worker.checkpoint.random_weights import RandomWeights
from pagewire_worker.kv.kv_cache import bytes_per_block
from pagewire_worker.layers.linear import pick_linear
from pagewire_worker.models.decoder import load_decoder
from pagewire_worker.models.linear_loader import LinearLoader
from pagewire_worker.models.registry import read_plan

SMALL, LARGE = SHAPES["qwen3-0.6b"], SHAPES["qwen3-8b"]
H200 = Limits(copy=4.3e12, products=788e12)


def test_shapes_have_the_published_numbers_of_weights():
    assert SMALL.num_step_weights == pytest.approx(0.596e9, rel=1e-3)
    assert LARGE.num_step_weights == pytest.approx(7.568e9, rel=1e-3)
    assert SMALL.kv_elements_per_token * 2 == 112 * 1024
    assert LARGE.kv_elements_per_token * 2 == 144 * 1024


class Counted(RandomWeights):
    """Adds up the elements of the matrices that are taken."""

    num_elements = 0

    def take_stacked(self, parts):
        self.num_elements += sum(math.prod(shape) for _, shape in parts if len(shape) == 2)
        return super().take_stacked(parts)


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_shape_has_the_weights_that_a_model_loads(is_tied, tmp_path):
    shape = replace(TOY, tied=is_tied, layers=3)
    config = read_plan(write_checkpoint(shape, tmp_path))
    cpu = torch.device("cpu")
    weights = Counted(0, cpu, torch.float32)
    kind = pick_linear("torch", cpu, torch.float32)
    load_decoder(config, weights, LinearLoader(weights, kind, cpu, torch.float32), 16, cpu)
    embedding = 0 if is_tied else shape.vocab * shape.hidden
    assert weights.num_elements == shape.num_step_weights + embedding
    per_block = bytes_per_block(config.cache_shape, 16, torch.bfloat16)
    assert per_block == 16 * shape.kv_elements_per_token * 2


def test_the_job_is_the_published_one_and_its_bound_is_that_of_the_goals():
    job = nano_vllm_job()
    assert sum(job.prompt_lens) == 142_827
    assert job.num_output_tokens == 133_966
    assert job.prompts[0][:3] == nano_vllm_job().prompts[0][:3]
    for shape, published in ((SMALL, 36_409), (LARGE, 13_008)):
        seconds = job_seconds(shape, job.prompt_lens, job.output_lens, H200)
        assert job.num_output_tokens / seconds == pytest.approx(published, rel=1e-4)


def test_floors_are_those_of_the_goals():
    assert decode_bytes(SMALL, [1024] * 16) / H200.copy == pytest.approx(0.714e-3, rel=1e-3)
    assert decode_bytes(SMALL, [4096] * 256) / H200.copy == pytest.approx(28.2e-3, rel=2e-3)
    assert decode_bytes(SMALL, [1024] * 256, kv_size=1) < decode_bytes(SMALL, [1024] * 256)
    assert prefill_seconds(LARGE, 2048, H200) == pytest.approx(37.7e-3, rel=2e-3)
    assert prefill_seconds(LARGE, 1, H200) == LARGE.num_step_weights * 2 / H200.copy


def test_idle_time_is_what_no_kernel_covers():
    # Two steps of two kernels each, one of them beside another one, and a break between the steps.
    intervals = [(10.0, 12.0), (0.0, 4.0), (1.0, 3.0), (5.0, 6.0)]
    idle = idle_of(intervals, 2)
    assert idle.total == (1 + 4) / 2
    assert idle.longest == 4
    assert idle_of([(0.0, 1.0)], 1).total == 0


def test_a_comparison_says_the_tax_and_the_gain():
    def row(name, milliseconds):
        return {"variant": name, "in flight": 2, "step ms": milliseconds}

    (found,) = compared([row("usual", 5.0), row(EXACT_NAME, 5.5), row("eager", 9.0)])
    assert found["tax"] == "10.0%"
    assert found["speed-up"] == pytest.approx(5 / 5.5)
    assert compared([row("eager", 9.0)]) == []


def test_a_report_is_written_with_every_table(tmp_path, capsys):
    path = tmp_path / "out.json"
    report = Report(Namespace(output=path), torch.device("cpu"))
    report.add("First", [{"a": 1, "b": None}])
    report.note("a word")
    assert json.loads(path.read_text())["notes"] == ["a word"]
    report.add("Second", [{"a": 0.123456}, {"a": 12345.6}])
    written = json.loads(path.read_text())
    assert [table["title"] for table in written["tables"]] == ["First", "Second"]
    assert written["machine"]["torch_version"] == torch.__version__
    printed = capsys.readouterr().out
    assert "| a | b |\n| --- | --- |\n| 1 | - |" in printed
    assert "| 0.123 |\n| 12,346 |" in printed
    assert shown("x") == "x"
