"""Products over packed weights against float64, and bitwise against themselves."""

import random

import pytest
import torch
from torch import Tensor

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import TYPES, KernelPool, pointer
from pagewire_worker.cpu_kernels.packing import PackedWeights, Part, Storage, WeightArena, pack
from pagewire_worker.families.plan import ClampedSwiglu, LinearSpec, MlpSpec
from pagewire_worker.layers.activation import ACTIVATIONS, gated
from support.kernels.fused_kernels import ROUNDING, multiply, needs_kernels, packed, pools

DTYPES = (torch.float32, torch.bfloat16)


def draw(generator: random.Random, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return x [rows, inputs], W [outputs, inputs] and maybe a bias."""
    outputs, inputs = generator.randrange(1, 400), 16 * generator.randrange(1, 30)
    rows = generator.choice([1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 130, 300])
    torch.manual_seed(generator.randrange(2**31))
    bias = torch.randn(outputs) if generator.random() < 0.5 else None
    return torch.randn(rows, inputs).to(dtype), torch.randn(outputs, inputs).to(dtype), bias


def assert_close(y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    exact = x.double() @ weight.double().T
    size = x.double().abs() @ weight.double().abs().T
    if bias is not None:
        exact, size = exact + bias.double(), size + bias.double().abs()
    assert ((y.double() - exact).abs() <= 1e-6 * size + 1e-6).all()


@pytest.mark.parametrize("pool", pools(1, 2, 3))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_a_product(pool: KernelPool, dtype: torch.dtype, seed: int) -> None:
    x, weight, bias = draw(random.Random(seed), dtype)
    linear = packed(pool, weight, bias)
    y = multiply(pool, linear, x)
    assert_close(y[:, : len(weight)], x, weight, bias)
    assert (y[:, len(weight) :] == 0).all()


@pytest.mark.parametrize("pool", pools(2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inputs", [208, 1104], ids=["in one block", "in several blocks"])
def test_a_row_does_not_depend_on_the_others(
    pool: KernelPool, dtype: torch.dtype, inputs: int
) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(300, inputs).to(dtype), torch.randn(300, inputs).to(dtype)
    linear = packed(pool, weight)
    whole = multiply(pool, linear, x)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 31, 32, 33, 64, 100, 299):
        begin = 300 - rows
        assert torch.equal(multiply(pool, linear, x[begin:]), whole[begin:]), rows
        assert torch.equal(multiply(pool, linear, x[:rows]), whole[:rows]), rows


@needs_kernels
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_product_does_not_depend_on_the_threads(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(70, 336).to(dtype), torch.randn(500, 336).to(dtype)
    results = [multiply(pool, packed(pool, weight), x) for pool in map(KernelPool, (1, 2, 5))]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("pool", pools(2))
def test_weights_come_in_any_type(pool: KernelPool, stored: torch.dtype) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(40, 32).to(stored), torch.randn(3, 32).bfloat16()
    linear = packed(pool, weight, kind=abi.BFLOAT16)
    assert_close(multiply(pool, linear, x)[:, :40], x, weight.bfloat16(), None)


def merged(pool: KernelPool, gate: Tensor, up: Tensor, biases: list[Tensor]) -> PackedWeights:
    storage = Storage.of(TYPES[gate.dtype], 2 * len(gate), gate.shape[1])
    parts = [Part(gate, 0, 2), Part(up, 1, 2)]
    bias_parts = [Part(bias, number, 2) for number, bias in enumerate(biases)]
    return pack(pool, WeightArena(storage.num_bytes), storage, parts, bias_parts)


@pytest.mark.parametrize("pool", pools(1, 2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 6, 9, 40, 300])
@pytest.mark.parametrize("has_bias", [False, True])
def test_gate_and_up(pool: KernelPool, dtype: torch.dtype, rows: int, has_bias: bool) -> None:
    torch.manual_seed(rows)
    gate, up = (torch.randn(176, 64).to(dtype) / 8 for _ in range(2))
    biases = [torch.randn(176), torch.randn(176)] if has_bias else []
    x = torch.randn(rows, 64).to(dtype)
    y = torch.full((rows, 176), float("nan"), dtype=dtype)
    structure = (linear := merged(pool, gate, up, biases)).structure()
    silu = abi.ActivationArgs.of("silu")
    pool.activate(TYPES[dtype], structure, silu, True, pointer(x), rows, None, pointer(y))
    assert linear.storage.num_outputs == 352
    sides = [x.double() @ weight.double().T for weight in (gate, up)]
    if has_bias:
        sides = [side + bias.double() for side, bias in zip(sides, biases, strict=True)]
    exact = torch.nn.functional.silu(sides[0]) * sides[1]
    assert ((y.double() - exact).abs() <= ROUNDING[dtype] * exact.abs() + 1e-5).all()


@pytest.mark.parametrize("pool", pools(1, 2, 3))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("vocab", [1, 15, 16, 100, 1000])
def test_the_greatest_output(pool: KernelPool, dtype: torch.dtype, vocab: int) -> None:
    torch.manual_seed(vocab)
    # Small whole numbers: many outputs are equal, and the first of the greatest wins.
    weight = torch.randint(-1, 2, (vocab, 16)).to(dtype)
    linear = packed(pool, weight)
    for rows in (1, 7, 70):
        x = torch.randint(-1, 2, (rows, 16)).to(dtype)
        found = torch.full((rows,), -1, dtype=torch.int64)
        structure = linear.structure()
        pool.argmax(TYPES[dtype], structure, pointer(x), rows, None, vocab, pointer(found))
        logits = x.double() @ weight.double().T
        first = (logits == logits.max(dim=1, keepdim=True).values).int().argmax(dim=1)
        assert torch.equal(found, first)


@pytest.mark.parametrize("pool", pools(2))
def test_padding_is_never_the_greatest(pool: KernelPool) -> None:
    weight, x = -torch.ones(17, 16), torch.ones(1, 16)
    found, structure = (
        torch.zeros(1, dtype=torch.int64),
        (linear := packed(pool, weight)).structure(),
    )
    pool.argmax(TYPES[torch.float32], structure, pointer(x), 1, None, 17, pointer(found))
    assert linear.storage.num_outputs == 32
    assert found.item() == 0


@pytest.mark.parametrize("pool", pools(1, 2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_norm(pool: KernelPool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(37, 208) * 3, torch.randn(208)
    y = torch.empty(37, 208, dtype=dtype)
    norm = abi.NormArgs(pointer(weight), None, 1e-6, 208, False)
    pool.norm(TYPES[dtype], pointer(x), norm, 37, pointer(y))
    wide = x.double()
    exact = wide / (wide.square().mean(1, keepdim=True) + 1e-6).sqrt() * weight.double()
    assert ((y.double() - exact).abs() <= ROUNDING[dtype] * exact.abs() + 1e-6).all()


@pytest.mark.parametrize("pool", pools(1, 2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_layer_norm(pool: KernelPool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(37, 208) * 3 + 5, torch.randn(208), torch.randn(208)
    y = torch.empty(37, 208, dtype=dtype)
    norm = abi.NormArgs(pointer(weight), pointer(bias), 1e-5, 208, True)
    pool.norm(TYPES[dtype], pointer(x), norm, 37, pointer(y))
    wide = (x.double(), (208,), weight.double(), bias.double(), 1e-5)
    exact = torch.nn.functional.layer_norm(*wide)
    assert ((y.double() - exact).abs() <= ROUNDING[dtype] * exact.abs() + 5e-6).all()


@pytest.mark.parametrize("pool", pools(1, 2))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("is_gated", [False, True])
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations(pool: KernelPool, dtype: torch.dtype, is_gated: bool, name: str) -> None:
    torch.manual_seed(0)
    size, rows = 48, 40
    gate, up = (torch.randn(size, 64).to(dtype) / 2 for _ in range(2))
    biases = [torch.randn(size), torch.randn(size)]
    linear = merged(pool, gate, up, biases) if is_gated else packed(pool, gate, biases[0])
    x, y = torch.randn(rows, 64).to(dtype), torch.full((rows, size), float("nan"), dtype=dtype)
    kind = abi.ActivationArgs.of(name)
    arguments = (linear.structure(), kind, is_gated, pointer(x), rows, None)
    pool.activate(TYPES[dtype], *arguments, pointer(y))
    exact = ACTIVATIONS[name](x.double() @ gate.double().T + biases[0].double())
    if is_gated:
        exact = exact * (x.double() @ up.double().T + biases[1].double())
    assert ((y.double() - exact).abs() <= ROUNDING[dtype] * exact.abs() + 2e-5).all()


CLAMPED = MlpSpec(
    up=(NOTHING := LinearSpec(parts=(), num_inputs=1)),
    down=NOTHING,
    size=1,
    clamped=ClampedSwiglu(7.0, 1.702),
)


@pytest.mark.parametrize("pool", pools(1))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_clamped_gate(pool: KernelPool, dtype: torch.dtype) -> None:
    """Both sides of either limit, and what is not finite: a limit hides no NaN."""
    gate = torch.tensor([-1e4, -50, -8, -7, -1, 0, 1, 6.9, 7, 7.1, 50, 1e4]).repeat_interleave(12)
    up = torch.tensor([-1e4, -50, -8, -7, -1, 0, 1, 6.9, 7, 7.1, 50, 1e4]).repeat(12)
    x = torch.stack((gate, up), dim=1).to(dtype)
    x = torch.cat((x, torch.tensor([[torch.nan, 1.0], [1.0, torch.nan]]).to(dtype)))
    rows = torch.zeros(len(x), 16, dtype=dtype)
    rows[:, :2] = x
    takes = torch.eye(16, dtype=dtype)
    linear = merged(pool, takes[[0] * 16], takes[[1] * 16], [])
    kind, y = abi.ActivationArgs.of(clamped=CLAMPED.clamped), torch.empty_like(rows)
    arguments = (linear.structure(), kind, True, pointer(rows), len(rows), None)
    pool.activate(TYPES[dtype], *arguments, pointer(y))
    exact = gated(CLAMPED, x[:, 0].double(), x[:, 1].double())
    assert exact[-2:].isnan().all()
    assert y[-2:].isnan().all()
    off = (y[:-2].double() - exact[:-2, None]).abs()
    assert (off <= ROUNDING[dtype] * exact[:-2, None].abs() + 1e-30).all()


@pytest.mark.parametrize("pool", pools(1))
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_of_all_sizes(pool: KernelPool, name: str) -> None:
    x = torch.cat((torch.linspace(-12, 12, 4000), torch.tensor([-1e30, -100, 0, 100, 1e30] * 16)))
    x = x[: len(x) // 16 * 16, None].repeat(1, 16) * torch.eye(1, 16)
    linear = packed(pool, torch.eye(16))
    y = torch.empty(len(x), 16)
    kind = abi.ActivationArgs.of(name)
    arguments = (linear.structure(), kind, False, pointer(x), len(x), None)
    pool.activate(abi.FLOAT32, *arguments, pointer(y))
    exact = ACTIVATIONS[name](x.double())
    assert ((y.double() - exact).abs() <= 4e-7 * x.double().abs() + 1e-37).all()


@pytest.mark.parametrize("pool", pools(1, 2))
@pytest.mark.parametrize("softcap", [0.0, 3.0, 30.0])
def test_logits_are_divided_and_capped(pool: KernelPool, softcap: float) -> None:
    torch.manual_seed(0)
    logits = torch.randn(9, 16000) * 40
    logits[0, :3] = torch.tensor([1e-6, -1e-3, 0.0])
    wanted = logits.double() / 1.7
    if softcap:
        wanted = softcap * torch.tanh(wanted / softcap)
    pool.finish_logits(pointer(logits), logits.numel(), 1.7, softcap)
    assert ((logits.double() - wanted).abs() <= 5e-7 * wanted.abs() + 1e-12).all()
