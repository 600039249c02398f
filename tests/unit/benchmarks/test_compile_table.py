"""What benchmarks/gpu/compile_table makes of what a compiler says."""

from dataclasses import replace

import pytest
from compile_table.occupancy import resident_warps
from compile_table.reasons import FREE_BYTES
from compile_table.rows import COLUMNS, Row, markdown

ROW = Row("9.0", "attend_tiles", "32/8x128 bf16", 8, 3, 190, 0, 0, 82176, "wgmma", "8 of 64")


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
