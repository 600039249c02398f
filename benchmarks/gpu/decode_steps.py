"""Decode steps of a worker against what their memory traffic takes at least.

    python benchmarks/gpu/decode_steps.py --shapes qwen3-0.6b

Batches of 1, 16, 64 and 256 sequences with 640, 1,024 and 4,096 tokens each: with CUDA graphs and
without, with one step begun at a time and with two. A step is what a worker's model thread does
with a plan: slots, batch, model, token, result; the scheduler is not part of it. The floor is
weights, keys and values, each read once, at the rate of a copy.

Idle time is that between kernels, from torch's profiler, which itself makes launches slower.

--exact compares exact mode at batch 64 with the usual one, --fp8-kv a KV cache of 8-bit floats at
batch 256 with one of the model's type; --only-compared leaves the other steps out.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import command
import torch
from bounds import decode_bytes
from decodes import Decodes, fill_cache
from idle import idle_of, profiled_intervals
from limits import Limits, measure_limits
from replicas import base_settings, kv_bytes, load, unknown_settings
from report import Report, Row
from shapes import Shape

from pagewire_worker.config import LINEAR_BACKENDS, WorkerConfig
from pagewire_worker.loading.loader import Replica

MEMORY_SHARE = 0.8
"""Of the device's memory for weights and cache; the rest is for steps and graphs."""

GOAL_ROWS = {
    ("qwen3-8b", 1, 1024): "4",
    ("qwen3-0.6b", 1, 1024): "5",
    ("qwen3-8b", 64, 640): "6",
    ("qwen3-0.6b", 256, 1024): "10",
    ("qwen3-8b", 256, 1024): "10",
}

VARIANTS = ["graphs", "eager"]
EAGER = {"enforce_eager": True}
EXACT = {"linear_backend": "fixed-tile"}
FP8_KV = {"kv_cache_dtype": "fp8_e4m3"}
EXACT_NAME = "exact mode (row 11)"
FP8_NAME = "fp8 KV (row 12)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """What is measured.

    Attributes:
        batches, contexts: Every combination.
        steps_in_flight: Steps that are begun at a time.
        num_steps: That count, after `num_warm_ups`, and before `num_profiled` that are profiled.
        temperature: Of all sequences.
    """

    batches: tuple[int, ...] = (1, 16, 64, 256)
    contexts: tuple[int, ...] = (640, 1024, 4096)
    steps_in_flight: tuple[int, ...] = (1, 2)
    num_steps: int = 48
    num_warm_ups: int = 8
    num_profiled: int = 8
    temperature: float = 0.0

    @property
    def num_all_steps(self) -> int:
        """Tokens that a sequence decodes."""
        return self.num_warm_ups + self.num_steps + self.num_profiled


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings that are compared, and the points that are measured with them."""

    name: str
    settings: Mapping[str, Any]
    points: Points
    kv_size: int = field(default=4 if command.IS_TOY else 2)


def settings_of(shape: Shape, variant: Variant) -> dict[str, Any]:
    """Return a worker's settings."""
    points = variant.points
    longest = max(points.contexts) + points.num_all_steps + 1
    wanted = max(points.batches) * (longest + 16)
    memory = kv_bytes(shape, wanted, variant.kv_size)
    if not command.IS_TOY:
        _, total = torch.cuda.mem_get_info()
        memory = min(memory, int(MEMORY_SHARE * total) - 2 * shape.num_step_weights)
    return base_settings(
        max_num_seqs=max(points.batches),
        max_model_len=longest,
        max_num_batched_tokens=max(2048, max(points.batches)),
        kv_cache_memory=memory,
        steps_in_flight=2,
        **variant.settings,
    )


def measure(shape: Shape, variant: Variant, limits: Limits) -> list[Row]:
    """Return the rows of one variant."""
    with tempfile.TemporaryDirectory() as folder:
        replica = load(shape, Path(folder), settings_of(shape, variant))
    fill_cache(replica.model_runner.backend.kv_cache)
    points = variant.points
    return [
        _row(shape, variant, replica, batch, context, steps_in_flight, limits)
        for context in points.contexts
        for batch in points.batches
        for steps_in_flight in points.steps_in_flight
    ]


def _row(
    shape: Shape,
    variant: Variant,
    replica: Replica,
    batch: int,
    context: int,
    steps_in_flight: int,
    limits: Limits,
) -> Row:
    points, device = variant.points, command.device()
    decodes = Decodes(replica, batch, context, points.num_all_steps, points.temperature)
    decodes.run(points.num_warm_ups, steps_in_flight)
    began = time.perf_counter()
    decodes.run(points.num_steps, steps_in_flight)
    seconds = (time.perf_counter() - began) / points.num_steps
    intervals = profiled_intervals(
        lambda: decodes.run(points.num_profiled, steps_in_flight), device
    )
    idle = idle_of(intervals, points.num_profiled)
    middle = context + points.num_warm_ups + points.num_steps // 2
    weight_size = command.dtype().itemsize
    num_bytes = decode_bytes(shape, [middle] * batch, weight_size, variant.kv_size)
    floor = num_bytes / limits.copy
    return {
        "row": GOAL_ROWS.get((shape.name, batch, context)),
        "variant": variant.name,
        "batch": batch,
        "context": context,
        "in flight": steps_in_flight,
        "step ms": seconds * 1e3,
        "floor ms": floor * 1e3,
        "of the floor": floor / seconds,
        "tok/s": batch / seconds,
        "idle ms": idle.total / 1e3,
        "longest gap ms": idle.longest / 1e3,
        "blocks": "shared" if decodes.shares_blocks else "own",
    }


TOY_POINTS = Points(batches=(2,), contexts=(20,), num_steps=1, num_warm_ups=1, num_profiled=2)


def variants_of(arguments: argparse.Namespace, report: Report) -> list[Variant]:
    """Return what is measured; notes what this version does not have."""
    heat = arguments.temperature
    variants = []
    if not arguments.only_compared:
        points = replace(TOY_POINTS if command.IS_TOY else Points(), temperature=heat)
        if unknown_settings(WorkerConfig, EAGER):
            report.note("this version has no CUDA graphs: all steps are eager")
            variants.append(Variant("eager", {}, points))
        else:
            both = {
                "graphs": Variant("graphs", {}, points),
                "eager": Variant("eager", EAGER, points),
            }
            variants += [both[name] for name in arguments.variants]
    if arguments.exact:
        points = _at(64, 640, heat)
        exact = Variant(EXACT_NAME, EXACT, points)
        variants += [Variant("usual", {}, points), exact] if _is_known(exact, report) else []
    if arguments.fp8_kv:
        points = _at(256, 1024, heat)
        fp8 = Variant(FP8_NAME, FP8_KV, points, kv_size=1)
        variants += [Variant("usual KV", {}, points), fp8] if _is_known(fp8, report) else []
    return variants


def _at(batch: int, context: int, temperature: float) -> Points:
    if command.IS_TOY:
        return replace(TOY_POINTS, batches=(2,), steps_in_flight=(1,), temperature=temperature)
    return Points(batches=(batch,), contexts=(context,), temperature=temperature)


def _is_known(variant: Variant, report: Report) -> bool:
    missing = unknown_settings(WorkerConfig, variant.settings)
    backend = variant.settings.get("linear_backend", "auto")
    if backend not in LINEAR_BACKENDS:
        missing.append(f"linear_backend {backend}")
    if missing:
        report.note(f"{variant.name}: left out, this version has no {', '.join(missing)}")
    return not missing


def compared(rows: Sequence[Row]) -> list[Row]:
    """Return what exact mode costs, and what fp8 KV gains, by steps in flight."""
    times = {(str(row["variant"]), row["in flight"]): row["step ms"] for row in rows}
    found: list[Row] = []
    for name, usual in ((EXACT_NAME, "usual"), (FP8_NAME, "usual KV")):
        for (variant, in_flight), time_ms in times.items():
            if variant != name:
                continue
            before = times[usual, in_flight]
            assert isinstance(time_ms, float)
            assert isinstance(before, float)
            found.append(
                {
                    "what": name,
                    "in flight": in_flight,
                    "step ms": time_ms,
                    "ms without": before,
                    "speed-up": before / time_ms,
                    "tax": f"{time_ms / before - 1:.1%}",
                }
            )
    return found


def main() -> None:
    """Print a table per shape and variant."""
    parser = command.make_parser(__doc__)
    command.add_shapes(parser, ["qwen3-0.6b", "qwen3-8b"])
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--exact", action="store_true", help="exact mode's price, row 11")
    parser.add_argument("--fp8-kv", action="store_true", help="what fp8 KV gains, row 12")
    parser.add_argument("--only-compared", action="store_true", help="rows 11 and 12 alone")
    arguments = parser.parse_args()
    report = Report(arguments, command.device())
    limits = command.in_fresh_process(measure_limits, command.device(), command.dtype())
    report.note(f"copy {limits.copy / 1e9:,.4g} GB/s")
    variants = variants_of(arguments, report)
    for shape in command.shapes_of(arguments):
        rows = []
        for variant in variants:
            found = command.in_fresh_process(measure, shape, variant, limits)
            report.add(f"{shape.name}: decode steps, {variant.name}", found)
            rows += found
        if comparison := compared(rows):
            report.add(f"{shape.name}: compared", comparison)


if __name__ == "__main__":
    main()
