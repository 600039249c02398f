"""What the worker launches: its functions, called as a step calls them, with tensors on the CPU
that nothing is computed of."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from compile_table.adapters import ADAPTERS
from pagewire_worker.attention.triton import CHUNK_ROWS, EXACT_CHUNK_ROWS, TritonAttention
from pagewire_worker.backend.attention import AttentionKind, AttentionMetadata, Int64Array
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix, Offset
from pagewire_worker.checkpoint.stored.float8 import E4M3
from pagewire_worker.checkpoint.stored.mxfp4 import TABLE
from pagewire_worker.cuda.triton_mlp import TritonExperts, TritonMlp
from pagewire_worker.families.plan import (
    ClampedSwiglu,
    ExpertsSpec,
    LinearSpec,
    MlpSpec,
    RouterSpec,
)
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.layers.code_linear import CodeLinear
from pagewire_worker.layers.int8_linear import Int8Linear
from pagewire_worker.layers.tile_linear import TileLinear
from pagewire_worker.models.linear_loader import MlpLinears, StackedLinears
from pagewire_worker.models.load_parts import RouterTensors
from pagewire_worker.triton_kernels.activate import activate
from pagewire_worker.triton_kernels.add_norm import add_norm
from pagewire_worker.triton_kernels.code_matmul import CodeTile
from pagewire_worker.triton_kernels.expert_code_matmul import expert_code_matmul
from pagewire_worker.triton_kernels.filter_thresholds import filter_thresholds
from pagewire_worker.triton_kernels.latent.head_matmul import head_matmul
from pagewire_worker.triton_kernels.latent.latent_write import latent_write
from pagewire_worker.triton_kernels.packed_codes import packed_stack
from pagewire_worker.triton_kernels.quantize_rows import quantize_rows
from pagewire_worker.triton_kernels.rotary_kv_write import HeadNorms, rotary_kv_write
from pagewire_worker.triton_kernels.route_tokens import SortedRows
from pagewire_worker.triton_kernels.sample_tokens import greedy_tokens, sample_tokens

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
FP8_CAPABILITY = 89
"""The first with 8-bit floats."""
CPU = torch.device("cpu")
BLOCK_SIZE = 16
VOCAB_SIZE = 151936
SHARED_SHAPES = ((1536, 2048), (2048, 768))


@dataclass(frozen=True, slots=True)
class Heads:
    """Of the attention of a model."""

    queries: int
    keys: int
    size: int
    window: int | None = None
    softcap: float | None = None
    has_sinks: bool = False


HEADS = {
    "32/8x128": Heads(32, 8, 128),
    "14/2x64": Heads(14, 2, 64),
    "32/32x96": Heads(32, 32, 96),
    "16/8x256-window-softcap": Heads(16, 8, 256, window=4096, softcap=50.0),
    "64/8x64-window-sinks": Heads(64, 8, 64, window=128, has_sinks=True),
}
"""As in Qwen3-8B, Qwen2.5-0.5B, Phi-3-mini, Gemma 2 and gpt-oss."""


@dataclass(frozen=True, slots=True)
class Codes:
    """Of a matrix as others have quantized it; `group` is None for all inputs of an output.

    Attributes:
        is_float: Codes are floats, of a table or of values that kernels compute.
    """

    bits: int
    group: int | None
    offset: Offset | None = None
    has_table: bool = False
    is_float: bool = False
    inputs: int = 4096


CODES = {
    "codes4-g128": Codes(4, 128),
    "codes4-g128-zeros": Codes(4, 128, Offset.ZERO_POINT),
    "codes4-g32-minima": Codes(4, 32, Offset.MINIMUM),
    "codes4-g64-table": Codes(4, 64, has_table=True),
    "codes4-g32": Codes(4, 32, inputs=4064),
    "codes8-row": Codes(8, None),
    "codes8-g16": Codes(8, 16),
    "codes8-g32-minima": Codes(8, 32, Offset.MINIMUM),
    "codes4-g32-floats": Codes(4, 32, is_float=True),
    "codes8-g128-floats": Codes(8, 128, is_float=True),
}
"""As in GPTQ and W4A16, AWQ, Q4_K, nf4, a matrix that is no whole number of slabs, W8A16, Q6_K,
Q5_K, MXFP4 and blocks of 8-bit floats."""

EXPERT_CODES = ("codes4-g128", "codes4-g128-zeros", "codes8-row", *list(CODES)[-2:])
"""Of experts."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Some launches.

    Attributes:
        name: Words that tell them from others.
        launch: Launches them.
        least_capability: Of a device that runs them, 80 for 8.0.
    """

    name: str
    launch: Callable[[], object]
    least_capability: int = 80


def groups() -> list[list[Variant]]:
    """Return all, in parts that are compiled by themselves: few kernels are in several."""
    of_heads = [
        [attention_variant("32/8x128", dtype, fp8=fp8, exact=exact) for exact in (False, True)]
        for dtype in DTYPES
        for fp8 in (False, True)
    ]
    of_heads += [
        [attention_variant(heads, dtype) for heads in HEADS if heads != "32/8x128"]
        for dtype in ("bf16", "fp32")
    ]
    of_heads += [
        [attention_variant("14/2x64", "bf16", exact=True)],
        [attention_variant("64/8x64-window-sinks", "bf16", exact=True)],
        [attention_variant("16/8x256-window-softcap", "fp32", fp8=True)],
    ]
    of_types = [[*_layers(dtype), *_products(dtype)] for dtype in DTYPES]
    of_types += [[experts_variant(dtype), clamped_variant(dtype)] for dtype in DTYPES]
    of_types += [[latent_variant(dtype)] for dtype in DTYPES]
    of_types += [
        [Variant(f"{name} {dtype}", partial(launch, kind))]
        for name, launch in ADAPTERS.items()
        for dtype, kind in DTYPES.items()
    ]
    of_codes = [[codes_variant(name, dtype) for name in CODES] for dtype in DTYPES]
    of_codes += [[coded_experts_variant(name, dtype) for name in EXPERT_CODES] for dtype in DTYPES]
    return [*of_heads, *of_types, *of_codes, list(_sampling())]


def attention_variant(
    heads: str, dtype: str, *, fp8: bool = False, exact: bool = False, table_width: int = 25
) -> Variant:
    """Return a step with a decode and the chunk of a prompt over one layer; `table_width` is that
    of its block tables, 25 at least."""
    words = [heads, dtype, *["fp8-cache"] * fp8, *["exact"] * exact]
    tables = np.zeros((2, table_width), dtype=np.int64)
    launch = partial(_attend, HEADS[heads], DTYPES[dtype], tables, fp8=fp8, exact=exact)
    return Variant(" ".join(words), launch, FP8_CAPABILITY if fp8 else 80)


def codes_variant(name: str, dtype: str) -> Variant:
    """Return a product with a matrix of codes."""
    codes, kind = CODES[name], DTYPES[dtype]
    linear = CodeLinear.of(_matrix(codes), None, CPU, kind)
    assert linear is not None
    x = torch.empty((3, codes.inputs), dtype=kind)
    return Variant(f"{codes.inputs}->4096 {dtype} {name}", partial(linear, x))


def _matrix(codes: Codes) -> CodedMatrix:
    group = codes.inputs if codes.group is None else codes.group
    scales = torch.empty((4096, codes.inputs // group), dtype=torch.float16)
    numbers = torch.arange(16.0).square() if codes.has_table else torch.arange(16.0) - 8
    tables = {4: torch.tensor(TABLE), 8: E4M3} if codes.is_float else {4: numbers, 8: None}
    return CodedMatrix(
        codes=torch.empty((4096, codes.inputs), dtype=torch.uint8),
        table=tables[codes.bits],
        scales=scales,
        offsets=None if codes.offset is None else scales,
        offset=codes.offset or Offset.ZERO_POINT,
    )


def coded_experts_variant(name: str, dtype: str) -> Variant:
    """Return a product of 8 experts with codes, of a token that takes 2 of them."""
    codes, kind = CODES[name], DTYPES[dtype]
    matrix, tile = _matrix(codes), CodeTile.of(kind)
    stack = packed_stack([matrix] * 8, 8, CPU)
    assert stack is not None
    rows = SortedRows(*(torch.empty(n, dtype=torch.int32) for n in (8 * tile.rows, 8)), 2)
    x = torch.empty((1, codes.inputs), dtype=kind)
    launch = partial(expert_code_matmul, x, stack, rows, tile, 2)
    return Variant(f"8 experts {codes.inputs}->4096 {dtype} {name}", launch)


def experts_variant(dtype: str) -> Variant:
    """Return a mixture of experts; those of Qwen3-30B-A3B, with a shared one as large."""
    kind = DTYPES[dtype]
    hidden, size, count, chosen = 2048, 768, 128, 8
    linear = LinearSpec(parts=(("gate", count),), num_inputs=hidden)
    mlp = MlpSpec(up=linear, down=linear, size=size)
    router = RouterSpec(linear=linear, num_experts=count, num_chosen=chosen)
    shared = [TileLinear(torch.empty(shape, dtype=kind), None) for shape in SHARED_SHAPES]
    experts = TritonExperts(
        spec=ExpertsSpec(router=router, experts=(mlp,)),
        router=RouterTensors(torch.empty((count, hidden)), None, None),
        up=StackedLinears(torch.empty((count, 2 * size, hidden), dtype=kind)),
        down=StackedLinears(torch.empty((count, hidden, size), dtype=kind)),
        shared=TritonMlp(mlp, MlpLinears(*shared)),
    )
    return Variant(f"128 experts {dtype}", partial(experts, torch.empty((3, hidden), dtype=kind)))


def latent_variant(dtype: str) -> Variant:
    """Return latent attention between its first and its last matrix, as in DeepSeek-V3."""
    return Variant(f"128/1x576 latent {dtype}", partial(_attend_latents, DTYPES[dtype]))


def _attend_latents(dtype: torch.dtype) -> None:
    heads, rank, turned, plain = 128, 512, 64, 128
    shape = CacheShape(num_layers=2, num_kv_heads=1, head_dim=rank + turned, latent_dim=rank)
    cache = _paged(shape, dtype).layers[0]
    metadata = AttentionMetadata(
        np.array([0, 1, 101]), np.array([300, 400]), np.zeros((2, 25), dtype=np.int64)
    )
    positions, slots, faults = (torch.empty(101, dtype=torch.int64) for _ in range(3))
    table = torch.empty((400, turned), dtype=dtype)
    queries = torch.empty((101, heads, plain + turned), dtype=dtype)
    query = latent_write(
        torch.empty((101, rank + turned), dtype=dtype),
        queries.flatten(1),
        positions,
        slots,
        table,
        table,
        cache.key,
        torch.empty(rank, dtype=dtype),
        1e-6,
        faults,
        heads,
    )
    matrices = torch.empty((heads, rank, plain), dtype=dtype)
    head_matmul(queries[..., :plain], matrices, query[..., :rank])
    attention = TritonAttention(CPU, AttentionKind(scale=0.1))
    attended = attention.prepare(metadata)(query, cache)
    values = torch.empty((heads, plain, rank), dtype=dtype)
    head_matmul(attended, values, torch.empty((101, heads, plain), dtype=dtype))


def clamped_variant(dtype: str) -> Variant:
    """Return a mixture of experts with biases and clamped gates; that of gpt-oss-20b."""
    kind, size, count = DTYPES[dtype], 2880, 32
    linear = LinearSpec(parts=(("gate", count),), num_inputs=size, has_bias=True)
    mlp = MlpSpec(up=linear, down=linear, size=size, clamped=ClampedSwiglu(7.0, 1.702))
    router = RouterSpec(linear=linear, num_experts=count, num_chosen=4)
    up, down = (
        StackedLinears(
            torch.empty((count, outputs, size), dtype=kind),
            torch.empty((count, outputs), dtype=kind),
        )
        for outputs in (2 * size, size)
    )
    experts = TritonExperts(
        spec=ExpertsSpec(router=router, experts=(mlp,)),
        router=RouterTensors(torch.empty((count, size)), torch.empty(count), None),
        up=up,
        down=down,
        shared=None,
    )
    x = torch.empty((3, size), dtype=kind)
    return Variant(f"32 experts {dtype} biases clamped", partial(experts, x))


def _attend(
    heads: Heads, dtype: torch.dtype, tables: Int64Array, *, fp8: bool, exact: bool
) -> None:
    rows = EXACT_CHUNK_ROWS if exact else CHUNK_ROWS
    kind = AttentionKind(heads.window, softcap=heads.softcap, has_sinks=heads.has_sinks)
    sinks = torch.empty(heads.queries) if heads.has_sinks else None
    attention = TritonAttention(CPU, kind, chunk_rows=rows)
    metadata = AttentionMetadata(np.array([0, 1, 101]), np.array([300, 400]), tables)
    query = torch.empty((101, heads.queries, heads.size), dtype=dtype)
    attention.prepare(metadata)(query, _cache(heads, dtype, fp8=fp8).layers[0], sinks)


def _cache(heads: Heads, dtype: torch.dtype, *, fp8: bool) -> KvCache:
    shape = CacheShape(num_layers=2, num_kv_heads=heads.keys, head_dim=heads.size)
    return _paged(shape, torch.float8_e4m3fn if fp8 else dtype)


def _paged(shape: CacheShape, kept: torch.dtype) -> KvCache:
    return KvCache(
        shape=shape,
        num_blocks=2,
        block_size=BLOCK_SIZE,
        device=CPU,
        dtype=kept,
        has_whole_blocks=True,
    )


def _layers(dtype: str) -> Iterator[Variant]:
    """Yield what lies between products and attention, of a small and a large model."""
    kind = DTYPES[dtype]
    for hidden in (1024, 4096):
        rows, weight = torch.empty((3, hidden), dtype=kind), torch.empty(hidden, dtype=kind)
        index = torch.empty(2, dtype=torch.int64)
        name = f"hidden-{hidden} {dtype}"
        yield Variant(f"{name} added", partial(add_norm, rows, rows, weight, 1e-6))
        yield Variant(f"{name} first", partial(add_norm, None, rows, weight, 1e-6))
        yield Variant(f"{name} last", partial(add_norm, None, rows, weight, 1e-6, index))
        yield Variant(name, partial(quantize_rows, rows), FP8_CAPABILITY)
    yield Variant(f"12288 {dtype}", partial(activate, torch.empty((3, 2 * 12288), dtype=kind)))
    for heads in ("32/8x128", "14/2x64"):
        for norms in (False, True):
            for fp8 in (False, True):
                words = [heads, dtype, *["norms"] * norms, *["fp8-cache"] * fp8]
                launch = partial(_write, HEADS[heads], kind, norms=norms, fp8=fp8)
                yield Variant(" ".join(words), launch, FP8_CAPABILITY if fp8 else 80)
    logits = torch.empty((2, VOCAB_SIZE), dtype=kind)
    faults = torch.empty(2, dtype=torch.int64)
    yield Variant(f"greedy {dtype}", partial(greedy_tokens, logits, faults=faults))


def _sampling() -> Iterator[Variant]:
    logits, heat = torch.empty((2, VOCAB_SIZE)), torch.empty(2)
    words, faults = torch.empty(2, dtype=torch.int64), torch.empty(2, dtype=torch.int64)
    rows = (logits, heat, words, words, words, words)
    yield Variant("sampled fp32", partial(sample_tokens, *rows, faults=faults))
    yield Variant("filtered fp32", partial(sample_tokens, *rows, heat, faults=faults))
    yield Variant("filters fp32", partial(filter_thresholds, logits, heat, heat, words, heat))


def _write(heads: Heads, dtype: torch.dtype, *, norms: bool, fp8: bool) -> None:
    layer = _cache(heads, dtype, fp8=fp8).layers[0]
    width = (heads.queries + 2 * heads.keys) * heads.size
    positions, slots, faults = (torch.empty(3, dtype=torch.int64) for _ in range(3))
    table, weight = torch.empty((40, heads.size), dtype=dtype), torch.empty(heads.size, dtype=dtype)
    rotary_kv_write(
        torch.empty((3, width), dtype=dtype),
        positions,
        slots,
        table,
        table,
        layer.key,
        layer.value,
        HeadNorms(weight, weight, 1e-6) if norms else None,
        torch.empty(2) if fp8 else None,
        faults,
    )


def _products(dtype: str) -> Iterator[Variant]:
    """Yield products of exact mode: wide and narrow weights, inputs in whole tiles and not."""
    for inputs, outputs in ((4096, 24576), (4096, 4096), (1024, 1024), (4100, 4096)):
        weight = torch.empty((outputs, inputs), dtype=DTYPES[dtype])
        for bias in (None, torch.empty(outputs, dtype=DTYPES[dtype])):
            name = f"{inputs}->{outputs} {dtype}" + (" bias" if bias is not None else "")
            x = torch.empty((3, inputs), dtype=DTYPES[dtype])
            yield Variant(name, partial(TileLinear(weight, bias), x))
    for outputs in (24576, 1024):
        weight, scales = torch.empty((outputs, 4096), dtype=torch.int8), torch.empty((outputs, 1))
        x = torch.empty((3, 4096), dtype=DTYPES[dtype])
        launch = partial(Int8Linear(weight, scales, None), x)
        yield Variant(f"4096->{outputs} {dtype} int8", launch)
