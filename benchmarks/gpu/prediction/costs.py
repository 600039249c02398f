"""What is assumed beside bytes and operations: three sets, of which the middle one is expected.

Where the figures come from: vLLM on an H100 and SGLang on an H200 need about 1.8 ms a step more
than reading the weights of Qwen3-8B takes, with some 360 kernels. If products of few rows reach
0.87 of a copy's rate, some 2.7 us a kernel are left, which are the gap in a graph and the time in
which a kernel begins and ends. Nothing here was measured with this project's kernels.
"""

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Assumptions.

    Attributes:
        weights_share: Of a copy's rate that products reach which read weights.
        products_share: Of the rate of a large product that those of a prompt reach.
        decode_share, fp8_decode_share: Of a copy's rate that attention of decodes reaches, by the
            type of the cache.
        prompt_share: Of the rate of a large product that attention of prompts reaches: 0.35 is
            276 TFLOP/s on an H200, for tiles of 64 rows by 8 warps, which spill nothing. Triton's
            tutorial reaches 0.55 on an H100 with keys that lie in a row.
        spilled: Of the bytes between kernels, what memory sees; the rest stays in the cache.
        ramp_us: Time in which a kernel begins and ends and memory does nothing.
        gap_us: Between two kernels of a graph.
        stream_gap_us: Between two that were launched one by one, in time.
        round_us: A load that waits for the one before.
        tile_share: Of the rate of the usual products, what those of exact mode reach where enough
            programs run.
        load_us: From asking for memory to having it: what one program has asked for moves once in
            that time.
        launch_us: CUDA's part of a launch from Python.
        product_us, operator_us, copy_us, graph_us: A product, another operator of torch, a copy by
            way of pinned memory, the replay of a graph; on the host.
        wake_us: From an event of the device to the thread that sleeps until then.
        core: How long the host's own work takes, of what a quiet fast core needs.
        hop_us: A message from one process to another.
        tail: The 95th percentile of times to a first token, of the middle.
    """

    weights_share: float
    products_share: float
    decode_share: float
    fp8_decode_share: float
    prompt_share: float
    spilled: float
    ramp_us: float
    gap_us: float
    stream_gap_us: float
    round_us: float
    tile_share: float
    load_us: float
    launch_us: float
    product_us: float
    operator_us: float
    copy_us: float
    graph_us: float
    wake_us: float
    core: float
    hop_us: float
    tail: float


_RANGES = {
    # name: best, expected, worst
    "weights_share": (0.93, 0.87, 0.80),
    "products_share": (0.93, 0.85, 0.70),
    "decode_share": (0.90, 0.80, 0.62),
    "fp8_decode_share": (0.82, 0.66, 0.48),
    "prompt_share": (0.45, 0.35, 0.22),
    "spilled": (0.2, 0.4, 1.0),
    "ramp_us": (1.0, 1.7, 2.5),
    "gap_us": (0.7, 1.0, 1.5),
    "stream_gap_us": (1.0, 1.5, 2.5),
    "round_us": (0.4, 0.7, 1.0),
    "tile_share": (1.0, 0.9, 0.75),
    "load_us": (0.8, 1.0, 1.4),
    "launch_us": (2.0, 3.0, 5.0),
    "product_us": (5.0, 7.0, 10.0),
    "operator_us": (3.0, 4.0, 6.0),
    "copy_us": (5.0, 8.0, 12.0),
    "graph_us": (6.0, 10.0, 20.0),
    "wake_us": (15.0, 30.0, 60.0),
    "core": (0.8, 1.0, 1.6),
    "hop_us": (80.0, 150.0, 300.0),
    "tail": (1.02, 1.05, 1.2),
}

BEST, EXPECTED, WORST = (
    Costs(**{name: values[place] for name, values in _RANGES.items()}) for place in range(3)
)

SLOW_HOST = replace(EXPECTED, core=WORST.core, hop_us=WORST.hop_us)
FAST_HOST = replace(EXPECTED, core=BEST.core, hop_us=BEST.hop_us)
SLOW_FP8 = replace(EXPECTED, fp8_decode_share=WORST.fp8_decode_share)
FAST_FP8 = replace(EXPECTED, fp8_decode_share=BEST.fp8_decode_share)
SLOW_TILES = replace(EXPECTED, load_us=WORST.load_us, tile_share=WORST.tile_share)
FAST_TILES = replace(EXPECTED, load_us=BEST.load_us, tile_share=BEST.tile_share)
"""What decides a row that is a ratio: both sides of it have the other costs."""

_SHARES = {item.name for item in fields(Costs) if item.name.endswith("_share")}

NONE = Costs(**{name: 1.0 if name in (*_SHARES, "tail") else 0.0 for name in _RANGES})
"""No overhead at all: what is left are bounds."""
