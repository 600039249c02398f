"""The kernels of arm64 under emulation, whose bits are those of AVX2 or of a formula.

The program checks by itself that a row has the same bits alone and in any batch.
"""

import platform
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pagewire_worker.cpu_kernels import build
from support.kernels.fused_kernels import needs_kernels
from support.kernels.kernel_program import Cases, KernelProgram
from support.source_tree import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),  # the compiler of a busy machine
    needs_kernels,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="results are compared with AVX2"),
]

RequireTool = Callable[[str, str], str]
Numbers = npt.NDArray[np.float64]

PLAIN_SETS = ("neon", "neon_dot")
"""They multiply bfloat16 as floats."""


def emulator(require_tool: RequireTool) -> list[str]:
    qemu = require_tool("qemu-aarch64", "apt-get install qemu-user")
    return [qemu, "-L", "/usr/aarch64-linux-gnu"]


def cross_compiler(require_tool: RequireTool) -> str:
    return require_tool("aarch64-linux-gnu-g++", "apt-get install g++-aarch64-linux-gnu")


@pytest.fixture(scope="module")
def program(require_tool: RequireTool, tmp_path_factory: pytest.TempPathFactory) -> KernelProgram:
    """The kernels of arm64, compiled in a hurry."""
    folder, compiler = tmp_path_factory.mktemp("arm64"), cross_compiler(require_tool)
    emulated = emulator(require_tool)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", compiler)
        quick = tuple("-O1" if flag == "-O3" else flag for flag in build._COMMON)
        patch.setattr(build, "_COMMON", quick)
        library = build.build(folder / "_kernels.so", "aarch64")
    return KernelProgram.compile(compiler, library, folder, emulated)


@pytest.fixture(scope="module")
def expected(require_tool: RequireTool, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Results of AVX2 on this machine."""
    compiler = require_tool("g++", "apt-get install g++")
    folder = tmp_path_factory.mktemp("x86")
    return KernelProgram.compile(compiler, build.LIBRARY, folder).results("avx2")


@pytest.mark.parametrize(
    ("processor", "sets"),
    [
        ("max", ["neon_bf16", "neon_dot", "neon"]),
        ("neoverse-n1", ["neon_dot", "neon"]),
        ("cortex-a72", ["neon"]),
    ],
)
def test_the_processor_says_which_sets_run(
    program: KernelProgram, processor: str, sets: list[str]
) -> None:
    assert program.sets("-cpu", processor) == sets


@pytest.mark.parametrize("name", PLAIN_SETS)
def test_sets_without_bfloat16_have_the_bits_of_avx2(
    name: str, program: KernelProgram, expected: Cases
) -> None:
    assert_plain(program.results(name), expected)


def test_products_of_bfloat16_round_to_odd(program: KernelProgram, expected: Cases) -> None:
    found = program.results("neon_bf16")
    assert_rounded_to_odd(found, expected)
    for inputs in (32, 224):
        outputs = {32: 16, 224: 112}[inputs]
        product = found[f"product-bfloat16-bfloat16-{inputs}"].reshape(50, outputs)
        assert np.array_equal(product, product_of_pairs(outputs, inputs))


def test_the_library_of_a_wheel(expected: Cases, require_tool: RequireTool, tmp_path: Path) -> None:
    """Of the one that `make wheel` has left, by another compiler: the same results."""
    member = "pagewire_worker/cpu_kernels/_kernels.so"
    wheels = sorted((ROOT / "dist").glob("*_aarch64.whl"))
    if not wheels:
        pytest.skip("there is no wheel for arm64: make wheel")
    with zipfile.ZipFile(wheels[-1]) as archive:
        library = Path(archive.extract(member, tmp_path))
    if not build.is_built(library):
        pytest.skip("the wheel for arm64 is of other sources: make wheel")
    made = KernelProgram.compile(
        cross_compiler(require_tool), library, tmp_path, emulator(require_tool)
    )
    for name in PLAIN_SETS:
        assert_plain(made.results(name), expected)
    assert_rounded_to_odd(made.results("neon_bf16"), expected)


def assert_plain(found: Cases, expected: Cases) -> None:
    assert found.keys() == expected.keys()
    different = [name for name in found if found[name].tobytes() != expected[name].tobytes()]
    assert different == []


def assert_rounded_to_odd(found: Cases, expected: Cases) -> None:
    """All but what multiplies bfloat16 has the bits of AVX2, and that is close."""
    assert found.keys() == expected.keys()
    for name, values in found.items():
        if not multiplies_bfloat16(name):
            assert values.tobytes() == expected[name].tobytes(), name
        # Tables of 4-bit codes have the digits of bfloat16.
        size = np.abs(expected[name]).max()
        assert np.abs(values - expected[name]).max() < 2**-7 * size, name
    assert found["product-bfloat16-bfloat16-224"].tobytes() != (
        expected["product-bfloat16-bfloat16-224"].tobytes()
    )


def multiplies_bfloat16(name: str) -> bool:
    return "bfloat16" in name and not name.endswith(("int8-32", "int8-224", "int4-32", "int4-224"))


def random_numbers(seed: int, count: int) -> Numbers:
    """Return the numbers of program/values.h."""
    state, found = (seed * 2654435761 + 12345) % 2**32, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        found.append(((state >> 8) % 65536 - 32768) / 32768)
    return np.array(found)


def product_of_pairs(num_outputs: int, num_inputs: int) -> npt.NDArray[np.float32]:
    """Return the product that program/products.h makes of 50 rows, as BFDOT computes it.

    The inputs have so few digits that sums of a pair, also with a sum before it, are exact.
    """
    seed, count = num_outputs + 31 * num_inputs + 1, num_outputs * (num_inputs + 1) + 16
    numbers = random_numbers(seed, count)
    bias, weight = numbers[:num_outputs], numbers[num_outputs + 16 :].astype(np.float32)
    rounded = (weight.view(np.uint32) + 0x7FFF + (weight.view(np.uint32) >> 16 & 1)) & 0xFFFF0000
    w = rounded.astype(np.uint32).view(np.float32).astype(float).reshape(num_outputs, num_inputs)
    rows = random_numbers(7, 50 * num_inputs).astype(np.float32).view(np.uint32) & 0xFFFF0000
    x = rows.astype(np.uint32).view(np.float32).astype(float).reshape(50, num_inputs)
    sums = np.zeros((50, num_outputs))
    for k in range(0, num_inputs, 2):
        pair = x[:, k, None] * w[:, k] + x[:, k + 1, None] * w[:, k + 1]
        sums = to_odd(sums + to_odd(pair))
    return sums.astype(np.float32) + bias.astype(np.float32)


def to_odd(values: Numbers) -> Numbers:
    """Round to float32: what is between two numbers becomes the one with an odd last digit."""
    near = values.astype(np.float32)
    below = np.where(np.abs(near) > np.abs(values), np.nextafter(near, np.float32(0)), near)
    is_exact = below.astype(float) == values
    odd = (below.view(np.uint32) | 1).view(np.float32)
    return np.where(is_exact, below, odd).astype(float)
