"""Items that say how fast the CUDA path is: rates of the device first, then steps, then jobs.

Seconds are estimates: drawing weights 5 to 10, capturing graphs 10, a job of 134,000 tokens 8 at
18,000 a second and 18 at 7,500.
"""

from hour.items import CELL, KERNELS, PYTHON, SCRATCH, WORKER, Item, script

SMALL, LARGE = "qwen3-0.6b", "qwen3-8b"
DECODES = ("attention-first", "model-eager", "sampling")
CAPTURED = ("graphs-states", "graphs-tokens", *DECODES)
STEPS_TOY = script("decode_steps.py", "--variants", "graphs", "--exact", "--fp8-kv", "--toy")
JOB_TOY = script("nano_vllm_job.py", "--toy")
KERNELS_TOY = script("kernels.py", "--toy")
TTFT_TOY = script("ttft.py", "--toy")


def _steps(name: str, shape: str, variant: str, rows: tuple[int, ...], seconds: int) -> Item:
    is_eager = variant == "eager"
    return Item(
        name=name,
        command=script("decode_steps.py", "--shapes", shape, "--variants", variant),
        toy=STEPS_TOY,
        shows=f"decode steps of {shape}, "
        + ("every kernel launched by itself" if is_eager else "captured, and idle time"),
        check="decode steps",
        rows=rows,
        seconds=seconds,
        limit=3 * seconds,
        needs=("model-eager",) if is_eager else ("model-captured",),
        proven_by=DECODES if is_eager else CAPTURED,
        modules=WORKER,
        gib=100,
    )


def _job(shape: str, path: str, row: int, seconds: int, *more: str) -> Item:
    is_eager = "--enforce-eager" in more
    size = shape.removeprefix("qwen3-")
    suffix = ("-served" if path == "served" else "") + ("-eager" if is_eager else "")
    return Item(
        name=f"job-{size}{suffix}",
        command=script(
            "nano_vllm_job.py", "--shapes", shape, "--path", path, "--repeats", "2", *more
        ),
        toy=JOB_TOY,
        shows=f"256 requests at once, {shape}, {path}" + (", without graphs" if is_eager else ""),
        check="a whole job",
        rows=(row,),
        seconds=seconds,
        limit=3 * seconds,
        needs=("model-eager",) if is_eager else ("model-captured",),
        proven_by=("greedy-first", *(DECODES if is_eager else CAPTURED)),
        instead_of="model-captured" if is_eager else "",
        modules=CELL if path == "served" else WORKER,
        gib=60,
    )


def _ttft(name: str, shape: str, rows: tuple[int, ...], *more: str) -> Item:
    is_eager = "--enforce-eager" in more
    return Item(
        name=name,
        command=script("ttft.py", "--shapes", shape, *more),
        toy=TTFT_TOY,
        shows=f"time to first token over HTTP, idle server, {shape}"
        + (", without graphs" if is_eager else ""),
        check="time to first token",
        rows=rows,
        seconds=70,
        limit=240,
        needs=("model-eager",) if is_eager else ("model-captured",),
        proven_by=("attention", "greedy-first", "sampling"),
        instead_of="model-captured" if is_eager else "",
        modules=CELL,
        gib=60,
    )


def _kernels(name: str, shape: str) -> Item:
    return Item(
        name=name,
        command=script("kernels.py", "--shapes", shape),
        toy=KERNELS_TOY,
        shows=f"each kernel of {shape} as a share of its limit",
        check="kernels one by one",
        rows=(9,),
        seconds=75,
        limit=300,
        needs=("launch",),
        proven_by=("attention", "sampling"),
        modules=WORKER,
        gib=40,
    )


SPEED = (
    Item(
        name="ceilings",
        command=script("ceilings.py"),
        toy=script("ceilings.py", "--toy"),
        shows="copies, matrix products, launches: what all figures are shares of",
        check="rates of the device",
        seconds=25,
        limit=120,
        needs=("launch",),
        modules=KERNELS,
        gib=8,
    ),
    _kernels("kernels-8b", LARGE),
    _steps("steps-0.6b", SMALL, "graphs", (5, 10), 80),
    _steps("steps-8b", LARGE, "graphs", (4, 6, 10), 110),
    _job(SMALL, "in-process", 1, 60),
    _job(SMALL, "in-process", 1, 80, "--enforce-eager"),
    _job(SMALL, "served", 3, 70),
    _ttft("ttft-8b", LARGE, (7, 8)),
    _ttft("ttft-8b-eager", LARGE, (7, 8), "--enforce-eager"),
    _job(LARGE, "in-process", 2, 80),
    Item(
        name="exact-fp8-0.6b",
        command=script(
            "decode_steps.py", "--shapes", SMALL, "--exact", "--fp8-kv", "--only-compared"
        ),
        toy=STEPS_TOY,
        shows="what exact mode costs at batch 64, what 8-bit KV gains at batch 256",
        check="price of exact mode, gain of fp8 KV",
        rows=(11, 12),
        seconds=90,
        limit=300,
        needs=("model-captured",),
        proven_by=("exact-products", "exact-batches", "fp8-logits", "graphs-states"),
        modules=WORKER,
        capability=(8, 9),
        gib=100,
    ),
    Item(
        name="invariance",
        command=script("batch_invariance.py", "--minutes", "4"),
        toy=script("batch_invariance.py", "--toy"),
        shows="the same bits alone and in 10,000 mixed batches, Qwen3-0.6B in exact mode",
        check="batch invariance",
        rows=(11,),
        seconds=200,
        limit=360,
        needs=("model-captured",),
        proven_by=("exact-products", "exact-batches"),
        modules=WORKER,
        gib=100,
    ),
    _job(LARGE, "served", 3, 100),
    _steps("steps-0.6b-eager", SMALL, "eager", (), 80),
    Item(
        name="exact-8b",
        command=script("decode_steps.py", "--shapes", LARGE, "--exact", "--only-compared"),
        toy=STEPS_TOY,
        shows="what exact mode costs at batch 64 with the larger shape",
        check="price of exact mode, gain of fp8 KV",
        rows=(11,),
        seconds=60,
        limit=240,
        needs=("model-captured",),
        proven_by=("exact-products", "exact-batches", "graphs-states"),
        modules=WORKER,
        gib=100,
    ),
    _kernels("kernels-0.6b", SMALL),
    _steps("steps-8b-eager", LARGE, "eager", (), 100),
)

LAST = (
    Item(
        name="checkpoint",
        command=(PYTHON, "benchmarks/make_checkpoint.py", "--out", f"{SCRATCH}/qwen2.5-0.5b"),
        toy=(
            *(PYTHON, "benchmarks/make_checkpoint.py", "--shape", "tiny-long"),
            *("--out", f"{SCRATCH}/qwen2.5-0.5b"),
        ),
        shows="nothing by itself: random weights for offline",
        seconds=30,
        limit=120,
        modules=frozenset({"torch", "safetensors", "tokenizers"}),
        has_kernels=False,
    ),
    Item(
        name="offline",
        command=(
            PYTHON,
            "benchmarks/offline.py",
            f"{SCRATCH}/qwen2.5-0.5b",
            "--device",
            "cuda",
        ),
        toy=(
            *(PYTHON, "benchmarks/offline.py", f"{SCRATCH}/qwen2.5-0.5b", "--device", "cpu"),
            *("--batches", "1", "--input-len", "4", "--output-len", "2", "--repeats", "1"),
        ),
        shows="tokens/s against transformers on the same device",
        check="offline speed",
        seconds=90,
        limit=300,
        needs=("checkpoint", "model-captured"),
        proven_by=("greedy-first",),
        modules=CELL,
    ),
    Item(
        name="training",
        command=(
            *(PYTHON, "models/builtin/train.py", "--run", f"{SCRATCH}/training"),
            *("--device", "cuda", "--steps", "3000"),
        ),
        toy=(PYTHON, "models/builtin/train.py", "--help"),
        shows="a training run of 98 M tokens ends in minutes, with exact answers",
        check="training the built-in model",
        seconds=300,
        limit=540,
        modules=frozenset({"torch", "tokenizers", "safetensors"}),
        gib=20,
    ),
)
