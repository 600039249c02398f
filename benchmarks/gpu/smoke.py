"""The smallest things that have to work on a device, one stage per process.

    python benchmarks/gpu/smoke.py launch|eager|captured

launch: an operator of torch, and a kernel of Triton against what it has to compute. eager: a tiny
model without graphs gives the tokens of torch's attention, float32. captured: in graphs it gives
the tokens of single launches.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import command
import torch
from report import Report, Row
from shapes import TOY

from pagewire_worker.triton_kernels.activate import activate

SHAPE = replace(TOY, hidden=256, intermediate=512, layers=2, head_dim=64, vocab=2048)
"""As small as a model whose widths are those of real ones."""

NUM_TOKENS = 2 if command.IS_TOY else 24
PROMPTS = (9,) if command.IS_TOY else (3, 17, 120, 300)


def launch() -> list[Row]:
    """Run an operator and a kernel."""
    device = command.device()
    ones = torch.ones(8, device=device)
    assert float((ones + ones).sum()) == 16.0, "an operator of torch computes something else"
    began = time.perf_counter()
    x = torch.randn(3, 64, device=device)
    gate, up = x.chunk(2, dim=-1)
    expected = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(activate(x), expected, rtol=1e-5, atol=1e-5)
    seconds = time.perf_counter() - began
    return [{"what": "first kernel: compiled, launched, compared", "seconds": seconds}]


def tokens_of(**settings: Any) -> list[list[int]]:
    """Return the greedy tokens of a tiny model with random weights, the same in every process."""
    from engine import Engine, Request
    from replicas import base_settings, load

    from pagewire_shared.sampling.params import SamplingParams

    chosen = base_settings(
        max_num_seqs=8,
        max_model_len=512,
        max_num_batched_tokens=64,
        kv_cache_memory=2**23 if command.IS_TOY else 2**27,
        steps_in_flight=2,
    )
    shape = TOY if command.IS_TOY else SHAPE
    with tempfile.TemporaryDirectory() as folder:
        replica = load(shape, Path(folder), {**chosen, "dtype": "float32", **settings})
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    requests = [Request([3 + n % 200 for n in range(size)], params) for size in PROMPTS]
    return [answer.token_ids for answer in Engine(replica).run(requests)]


def _compared(name: str, one: dict[str, Any], other: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    began = time.perf_counter()
    found = tokens_of(**one)
    seconds = time.perf_counter() - began
    expected = tokens_of(**other)
    for size, tokens, right in zip(PROMPTS, found, expected, strict=True):
        same = next((n for n, (a, b) in enumerate(zip(tokens, right, strict=True)) if a != b), None)
        row: Row = {"what": name, "prompt": size, "tokens": len(tokens)}
        rows.append({**row, "first other token": same, "seconds of the first": seconds})
    return rows


def eager() -> list[Row]:
    """Compare the kernels' attention with torch's."""
    kernels = {"attention_backend": "triton", "enforce_eager": True}
    return _compared("kernels, sdpa", kernels, {"attention_backend": "sdpa"})


def captured() -> list[Row]:
    """Compare graphs with single launches."""
    return _compared("graphs, single launches", {}, {"enforce_eager": True})


STAGES: dict[str, Callable[[], list[Row]]] = {
    "launch": launch,
    "eager": eager,
    "captured": captured,
}


def main() -> None:
    """Run stages; the exit code is 1 where tokens differ."""
    parser = command.make_parser(__doc__)
    parser.add_argument("stages", nargs="+", choices=STAGES)
    arguments = parser.parse_args()
    report = Report(arguments, command.device())
    is_other = False
    for stage in arguments.stages:
        rows = STAGES[stage]()
        report.add(stage, rows)
        is_other |= any(row.get("first other token") is not None for row in rows)
    if is_other:
        raise SystemExit("tokens differ")


if __name__ == "__main__":
    main()
