"""The kernels of a model one by one, as a share of what the device can do at best.

    python benchmarks/gpu/kernels.py --shapes qwen3-8b

Paged attention of decodes and of prompts, matrix products, norm, rotary embedding, gate, sampling,
in the sizes that a shape gives them. The limit of a kernel is the longer of reading and writing
what it has to at the rate of a copy, and its operations at the rate of a large matrix product.
Weights and blocks are cold, as in a model with many layers. What lies between products finds its
input in the caches, as it does there, and can then be faster than its limit.
"""

from collections.abc import Callable
from dataclasses import dataclass

import command
import torch
from kernel_cases import Case, attention_cases, glue_cases, product_cases, sampling_cases
from limits import Limits, measure_limits
from report import Report, Row
from shapes import Shape
from timing import device_seconds


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much there is in the cases.

    Attributes:
        batches, contexts: Of decodes.
        prompts: Tokens of a prompt that is computed at once.
        rows: Tokens of a step, for what works token by token.
        samples: Rows of logits.
    """

    batches: tuple[int, ...] = (1, 16, 64, 256)
    contexts: tuple[int, ...] = (1024, 4096)
    prompts: tuple[int, ...] = (1024, 2048, 8192)
    rows: tuple[int, ...] = (1, 64, 256, 8192)
    samples: tuple[int, ...] = (1, 64, 256)


TOY_SIZES = Sizes(batches=(1, 3), contexts=(20,), prompts=(20,), rows=(3,), samples=(2,))


def row(case: Case, limits: Limits, device: torch.device) -> Row:
    """Return a line of a table."""
    seconds = device_seconds(case.jobs, device, repeats=5 if device.type == "cuda" else 1)
    limit = max(case.num_bytes / limits.copy, case.num_operations / limits.products)
    return {
        "kernel": case.name,
        "us": seconds * 1e6,
        "GB/s": case.num_bytes / seconds / 1e9,
        "TFLOP/s": case.num_operations / seconds / 1e12 if case.num_operations else None,
        "of the limit": limit / seconds,
    }


@torch.inference_mode()
def measure(shape: Shape, sizes: Sizes, limits: Limits, report: Report) -> None:
    """Add the tables of one shape."""
    device, dtype = command.device(), command.dtype()
    groups: tuple[tuple[str, Callable[[], list[Case]]], ...] = (
        (
            "paged attention (row 9: decodes at batch 64)",
            lambda: attention_cases(
                shape, sizes.batches, sizes.contexts, sizes.prompts, device, dtype
            ),
        ),
        ("matrix products", lambda: product_cases(shape, sizes.rows, device, dtype)),
        ("between products", lambda: glue_cases(shape, sizes.rows, device, dtype)),
        ("sampling", lambda: sampling_cases(shape, sizes.samples, device)),
    )
    for title, cases in groups:
        rows = [row(case, limits, device) for case in cases()]
        report.add(f"{shape.name}: {title}", rows)


def main() -> None:
    """Print four tables per shape."""
    parser = command.make_parser(__doc__)
    command.add_shapes(parser, ["qwen3-0.6b", "qwen3-8b"])
    arguments = parser.parse_args()
    device = command.device()
    report = Report(arguments, device)
    limits = measure_limits(device, command.dtype())
    report.note(
        f"copy {limits.copy / 1e9:,.4g} GB/s, products {limits.products / 1e12:,.4g} TFLOP/s"
    )
    sizes = TOY_SIZES if command.IS_TOY else Sizes()
    for shape in command.shapes_of(arguments):
        measure(shape, sizes, limits, report)


if __name__ == "__main__":
    main()
