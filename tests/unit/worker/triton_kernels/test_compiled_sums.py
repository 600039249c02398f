"""What exact attention and speed rest on, read from compiled code, which takes a compiler and no
device: chunks in tiles of 16 rows are summed as decodes are, operation for operation; nothing
spills."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
PROGRAM = ROOT / "tests/support/kernels/compiled_kernels.py"
PAGE = ROOT / "docs/gpu/compile-table.md"

# A second for each kernel, on a machine that does nothing else.
pytestmark = pytest.mark.timeout(600)

NUM_PRODUCTS_AND_REDUCTIONS = 4
"""Scores, their maxima, weights in all, weighted values."""

SHARED_MEMORY = 99 * 1024
"""What a program may take on every device since compute capability 8.0."""

LOADS_PER_SPLIT = 3
"""Sums, greatest score, total weight."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Kernels by capability and variant, then by name, from one process: there they are not
    interpreted."""
    environ = {
        **os.environ,
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")),
        "PYTHONPATH": ":".join([str(ROOT / "benchmarks/gpu"), *sys.path]),
    }
    environ.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


EXACT = [
    "90 32/8x128 bf16",
    "90 32/8x128 bf16 fp8-cache",
    "90 16/8x256-window-softcap fp32",
]


@pytest.mark.parametrize("variant", EXACT)
def test_exact_chunks_are_summed_as_decodes(variant, compiled):
    exact = compiled[f"{variant} exact"]
    assert len(exact["attend_tiles"]["sums"]) == NUM_PRODUCTS_AND_REDUCTIONS
    assert exact["attend_tiles"]["sums"] == exact["decode_splits"]["sums"]


def test_chunks_of_latents_are_summed_as_decodes(compiled):
    latent = compiled["90 128/1x576 latent bf16"]
    # Keys are multiplied in two parts.
    assert len(latent["latent_tiles"]["sums"]) == NUM_PRODUCTS_AND_REDUCTIONS + 1
    assert latent["latent_tiles"]["sums"] == latent["latent_splits"]["sums"]


@pytest.mark.parametrize("variant", EXACT)
def test_decodes_are_the_same_in_both_modes_and_over_other_tables(variant, compiled):
    plain, exact, wide = (compiled[variant + words] for words in ("", " exact", " exact wide"))
    for name in exact:
        assert exact[name]["hash"] == wide[name]["hash"]
    assert plain["decode_splits"]["hash"] == exact["decode_splits"]["hash"]


@pytest.mark.parametrize("variant", [one for one in EXACT if "fp8" in one])
def test_larger_tiles_are_summed_otherwise(variant, compiled):
    # So a difference is seen where there is one. Tensor cores go over prompts in one pass.
    plain, exact = (compiled[variant + words]["attend_tiles"] for words in ("", " exact"))
    assert plain["sums"] != exact["sums"]


def test_nothing_spills_and_all_fits_every_device(compiled):
    kernels = [kernel for found in compiled.values() for kernel in found.values()]
    assert len(kernels) > 3 * len(compiled) / 2
    assert [kernel["fault"] for kernel in kernels if kernel["fault"]] == []
    # Instructions of newer devices take more than those of older ones.
    assert max(kernel["shared"] for kernel in kernels) <= SHARED_MEMORY


def test_a_merge_loads_many_splits_ahead(compiled):
    ptx = compiled["90 32/8x128 bf16"]["merge_splits"]["ptx"]
    ahead = max(map(int, re.findall(r"cp\.async\.wait_group\s+(\d+)", ptx)), default=0)
    assert ahead >= 8 * LOADS_PER_SPLIT


def test_the_page_says_what_is_compiled_here(compiled):
    page = PAGE.read_text()
    if f"triton {version('triton')} " not in page:
        pytest.skip("the page was made with another version of Triton")
    lines = {kernel["line"] for found in compiled.values() for kernel in found.values()}
    # A kernel that was in a variant before stands there alone.
    known = set(page.splitlines())
    cells = {tuple(line.split(" | ")[:2] + line.split(" | ")[3:]) for line in known}
    missing = [
        line
        for line in lines - known
        if tuple(line.split(" | ")[:2] + line.split(" | ")[3:]) not in cells
    ]
    assert missing == [], "python benchmarks/gpu/compile_table --output docs/gpu/compile-table.md"
