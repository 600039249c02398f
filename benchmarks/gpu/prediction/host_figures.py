"""What the host takes, as it was measured once: counts and times, with their date and machine.

The file beside this one is what predictions are made from, so that they can be made again anywhere;
`predict.py --measure-host` measures anew.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

PATH = Path(__file__).with_name("host_figures.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStep:
    """One kind of step, on average.

    Attributes:
        launches: Of Triton's kernels, those in a graph not counted.
        products: Of matrices, likewise.
        operators: Others of torch.
        copies: From the host and to it.
        graphs: Replays.
        graph_launches: Of Triton's kernels in the graph.
        python_us: CPU time of the worker's code, of torch's for what is no product, and of Triton's
            launcher; nothing of CUDA's driver.
        layer_us: The part of it that each layer takes.
    """

    launches: float
    products: float
    operators: float
    copies: float
    graphs: float
    graph_launches: int
    python_us: float = 0.0
    layer_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFigures:
    """What was measured.

    Attributes:
        date, machine: When and where.
        layers: Of the model whose steps these are.
        reference_us: What `benchmarks/worker_host.py` finds for one greedy sequence there, in CPU
            time: how fast a core of this machine was at this hour.
        first_token_ms: From a request over HTTP to its first token, of a model that computes next
            to nothing, at an idle server: the fastest of many.
        steps: By kind.
    """

    date: str
    machine: str
    layers: int
    reference_us: float
    first_token_ms: float
    steps: Mapping[str, HostStep]


def load(path: Path = PATH) -> HostFigures:
    """Return the figures in a file."""
    content = json.loads(path.read_text())
    steps = {name: HostStep(**step) for name, step in content.pop("steps").items()}
    return HostFigures(**content, steps=steps)


def save(figures: HostFigures, path: Path = PATH) -> None:
    """Write figures to a file."""
    path.write_text(json.dumps(asdict(figures), indent=1) + "\n")
