"""The job of nano-vllm's and mini-sglang's bench.py: 256 requests at once, output tokens a second.

    python benchmarks/gpu/nano_vllm_job.py --shapes qwen3-0.6b --path in-process served

142,827 prompt tokens, 133,966 output tokens, temperature 0.6, no end of sequence. `in-process` is a
scheduler core over an executor; `served` is pagewire.LLM: frontend, scheduler and worker as
processes, tokens streamed between them. The bound is all prompts at the rate of a matrix product,
then every step's weights, keys and values at the rate of a copy, and nothing else.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command
from bounds import job_seconds
from engine import Engine, Request
from jobs import TEMPERATURE, Job, nano_vllm_job, toy_job
from limits import Limits, measure_limits
from replicas import base_settings, kv_bytes, load, unknown_settings
from report import Report, Row
from shapes import Shape, write_checkpoint

from pagewire import LLM
from pagewire.config import ServeConfig
from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.config import WorkerConfig

GOAL_ROWS = {
    ("qwen3-0.6b", "in-process"): "1",
    ("qwen3-8b", "in-process"): "2",
    ("qwen3-0.6b", "served"): "3",
    ("qwen3-8b", "served"): "3",
}


def job_of(shape: Shape) -> Job:
    """Return what is run."""
    return toy_job(shape.vocab) if command.IS_TOY else nano_vllm_job()


def settings_of(shape: Shape, job: Job, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return settings for either path: room for all requests together."""
    longest = 128 if command.IS_TOY else 4096
    num_tokens = sum(job.prompt_lens) + job.num_output_tokens + 16 * len(job.prompts)
    more = {"enforce_eager": True} if arguments.enforce_eager else {}
    return base_settings(
        max_num_seqs=len(job.prompts),
        max_model_len=longest,
        max_num_batched_tokens=arguments.max_num_batched_tokens,
        kv_cache_memory=kv_bytes(shape, max(num_tokens, longest), command.dtype().itemsize),
        steps_in_flight=2,
        **more,
    )


def params_of(job: Job) -> list[SamplingParams]:
    """Return how each request is sampled."""
    return [
        SamplingParams(temperature=TEMPERATURE, ignore_eos=True, max_tokens=length, seed=number)
        for number, length in enumerate(job.output_lens)
    ]


def times(run: Callable[[Job], list[int]], job: Job, repeats: int) -> list[float]:
    """Return the seconds of each run; `run` returns how many tokens each request got."""
    warm_up = Job(job.prompts[:1], [2])
    assert run(warm_up) == [2]
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        lengths = run(job)
        found.append(time.perf_counter() - began)
        assert lengths == job.output_lens
    return found


def in_process(shape: Shape, settings: dict[str, Any], repeats: int) -> list[float]:
    """Return the seconds of runs by an engine of this process."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(load(shape, Path(folder), settings))

    def run(job: Job) -> list[int]:
        requests = map(Request, job.prompts, params_of(job))
        return [len(answer.token_ids) for answer in engine.run(list(requests))]

    return times(run, job_of(shape), repeats)


def served(shape: Shape, settings: dict[str, Any], repeats: int) -> list[float]:
    """Return the seconds of runs through the processes of pagewire.LLM."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LLM(
            str(write_checkpoint(shape, Path(folder))), enable_prefix_caching=False, **settings
        ) as llm,
    ):

        def run(job: Job) -> list[int]:
            prompts = [{"prompt_token_ids": prompt} for prompt in job.prompts]
            outputs = llm.generate(prompts, params_of(job), use_tqdm=False)
            return [len(output.outputs[0].token_ids) for output in outputs]

        return times(run, job_of(shape), repeats)


PATHS = {"in-process": in_process, "served": served}


def row(shape: Shape, path: str, seconds: list[float], limits: Limits) -> Row:
    """Return a line of the table."""
    job = job_of(shape)
    bound = job_seconds(shape, job.prompt_lens, job.output_lens, limits)
    middle = statistics.median(seconds)
    return {
        "row": GOAL_ROWS.get((shape.name, path)),
        "shape": shape.name,
        "path": path,
        "tok/s": job.num_output_tokens / middle,
        "first run tok/s": job.num_output_tokens / seconds[0],
        "seconds": middle,
        "bound tok/s": job.num_output_tokens / bound,
        "of the bound": bound / middle,
    }


def main() -> None:
    """Print one table."""
    parser = command.make_parser(__doc__)
    command.add_shapes(parser, ["qwen3-0.6b", "qwen3-8b"])
    parser.add_argument("--path", nargs="+", choices=PATHS, default=list(PATHS))
    parser.add_argument("--repeats", type=int, default=1 if command.IS_TOY else 3)
    parser.add_argument(
        "--max-num-batched-tokens", type=int, default=32 if command.IS_TOY else 16384
    )
    parser.add_argument("--enforce-eager", action="store_true", help="without CUDA graphs")
    arguments = parser.parse_args()
    report = Report(arguments, command.device())
    limits = command.in_fresh_process(measure_limits, command.device(), command.dtype())
    rows = []
    for shape in command.shapes_of(arguments):
        job = job_of(shape)
        settings = settings_of(shape, job, arguments)
        missing = unknown_settings(WorkerConfig, settings) + unknown_settings(ServeConfig, settings)
        if missing:
            raise SystemExit(f"this version has no {', '.join(sorted(set(missing)))}")
        for path in arguments.path:
            seconds = command.in_fresh_process(PATHS[path], shape, settings, arguments.repeats)
            rows.append(row(shape, path, seconds, limits))
    prompts, outputs = sum(job.prompt_lens), job.num_output_tokens
    report.add(f"{len(job.prompts)} requests, {prompts:,} tokens in, {outputs:,} out", rows)


if __name__ == "__main__":
    main()
