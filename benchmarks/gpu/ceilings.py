"""What the device can do at best: the rates that the other commands' figures are fractions of.

    python benchmarks/gpu/ceilings.py

Copies within its memory, matrix products, copies from and to pinned memory of the host, and what
launches of kernels and replays of graphs cost.
"""

import command
import torch
from limits import copy_rate, fp8_product_rate, host_copy_rates, product_rate, read_rate
from report import Report, Row
from timing import enqueued_seconds, graph_of, host_seconds

from pagewire_worker.triton_kernels.activate import activate

NODES = 200


def rates(device: torch.device) -> list[Row]:
    """Return the rates of copies and products."""
    to, back = host_copy_rates(device)
    products = product_rate(device, command.dtype())
    fp8 = fp8_product_rate(device)
    name = str(command.dtype()).removeprefix("torch.")
    found = (
        ("copy within the device, read and written", copy_rate(device) / 1e9, "GB/s"),
        ("reading it once", read_rate(device) / 1e9, "GB/s"),
        (f"matrix product, {name}", products / 1e12, "TFLOP/s"),
        ("matrix product, fp8 e4m3", None if fp8 is None else fp8 / 1e12, "TFLOP/s"),
        ("pinned memory of the host to the device", to / 1e9, "GB/s"),
        ("the device to pinned memory of the host", back / 1e9, "GB/s"),
    )
    return [{"what": what, "rate": rate, "unit": unit} for what, rate, unit in found]


@torch.inference_mode()
def launches(device: torch.device) -> list[Row]:
    """Return microseconds of the host per launch, and per graph of a few hundred tiny kernels."""
    x = torch.zeros(1, 16, device=device)
    repeats = 200 if device.type == "cuda" else 5
    seconds: dict[str, float | None] = {
        "launch of an operator of torch, host": host_seconds(lambda: x.add_(1), device, repeats),
        "launch of a Triton kernel, host": host_seconds(lambda: activate(x), device, repeats),
        f"replay of a graph of {NODES} kernels, host": None,
        f"a kernel in a graph of {NODES}, device": None,
    }
    if device.type == "cuda":
        graph = graph_of([lambda: x.add_(1)], NODES)
        seconds[f"replay of a graph of {NODES} kernels, host"] = _replay_host_seconds(graph)
        seconds[f"a kernel in a graph of {NODES}, device"] = _node_seconds(graph)
    return [{"what": k, "us": None if v is None else v * 1e6} for k, v in seconds.items()]


def _replay_host_seconds(graph: torch.cuda.CUDAGraph) -> float:
    # Few: many replays would fill the queue, and then the host waits for the device.
    return host_seconds(graph.replay, torch.device("cuda"), repeats=10)


def _node_seconds(graph: torch.cuda.CUDAGraph, replays: int = 20) -> float:
    def run() -> None:
        for _ in range(replays):
            graph.replay()

    return enqueued_seconds(run) / replays / NODES


def main() -> None:
    """Print both tables."""
    arguments = command.make_parser(__doc__).parse_args()
    device = command.device()
    report = Report(arguments, device)
    report.add("Rates", rates(device))
    report.add("Launches", launches(device))


if __name__ == "__main__":
    main()
