"""What benchmarks/gpu/compile_table makes of what a compiler says, and that its page is whole."""

import re
from dataclasses import replace

import pytest
from compile_table.occupancy import resident_warps
from compile_table.reasons import FREE_BYTES, REASONS
from compile_table.rows import COLUMNS, Row, markdown

from .conftest import BENCHMARKS

ROOT = BENCHMARKS.parent
KERNELS = ROOT / "services/worker/pagewire_worker/triton_kernels"
NEVER_LAUNCHED = {"gumbel_noise"}
"""By the worker: tests compare its numbers."""

ROW = Row("9.0", "attend_tiles", "32/8x128 bf16", 8, 3, 190, 0, 0, 82176, "wgmma", "8 of 64")


@pytest.fixture(scope="module")
def page():
    lines = (ROOT / "docs/gpu/compile-table.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if re.match(r"\| \d\.\d \|", line)]
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


@pytest.mark.parametrize(
    ("capability", "num_warps", "registers", "shared", "expected"),
    [
        (90, 4, 32, 0, 64),  # all there are
        (89, 4, 32, 0, 48),
        (90, 1, 32, 0, 32),  # blocks
        (89, 1, 32, 0, 24),
        (90, 16, 128, 0, 16),  # registers: one block of 512 threads
        (90, 16, 129, 0, 0),  # none
        (90, 4, 168, 0, 12),
        (90, 4, 169, 0, 8),
        (90, 4, 64, 113 * 1024, 8),  # shared memory, with what the system takes
        (90, 4, 64, 113 * 1024 + 1, 4),
        (80, 4, 64, 100 * 1024, 4),
        (89, 4, 64, 99 * 1024 + 1, 0),
    ],
)
def test_resident_warps(capability, num_warps, registers, shared, expected):
    assert resident_warps(capability, num_warps, registers, shared) == expected


@pytest.mark.parametrize("field", ["spill_stores", "spill_loads"])
def test_a_spill_that_nobody_knows_is_a_fault(field):
    assert replace(ROW, **{field: FREE_BYTES}).fault is None
    fault = replace(ROW, **{field: FREE_BYTES + 1}).fault
    assert "attend_tiles (32/8x128 bf16) for 9.0 spills" in fault


def test_a_kernel_that_has_no_room_is_a_fault():
    assert "shared memory" in replace(ROW, resident="0 of 64").fault


def test_a_row_has_a_cell_per_column():
    line = markdown([ROW]).splitlines()[-1]
    assert line.count(" | ") == len(COLUMNS) - 1
    assert line.startswith("| 9.0 | attend_tiles | 32/8x128 bf16 | 8 | 3 | 190 |")


def test_every_kernel_is_in_the_page_for_every_capability(page):
    sources = "\n".join(path.read_text() for path in KERNELS.rglob("*.py"))
    launched = set(re.findall(r"^ +_(\w+)\[.+?\]\(", sources, re.MULTILINE)) - NEVER_LAUNCHED
    assert len(launched) > 8
    for capability in ("8.0", "8.9", "9.0"):
        found = {row["kernel"] for row in page if row["capability"] == capability}
        assert found == launched


def test_every_spill_of_the_page_has_a_reason_and_every_reason_a_spill(page):
    spilling = [
        row for row in page if max(int(row["spill stores"]), int(row["spill loads"])) > FREE_BYTES
    ]
    assert {(row["kernel"], row["variant"]) for row in spilling} == REASONS.keys()
