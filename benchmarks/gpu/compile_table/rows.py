"""Rows of the table, and the table in Markdown."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from compile_table.launches import Launch
from compile_table.occupancy import MULTIPROCESSORS, resident_warps
from compile_table.reasons import FREE_BYTES, reason_for

COLUMNS = (
    *("capability", "kernel", "variant", "warps", "stages", "registers", "spill stores"),
    *("spill loads", "shared memory", "tensor cores", "resident warps"),
)
_PRODUCTS = re.compile(r"\b(wgmma\.mma_async|mma\.sync)")


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel as it is compiled for one compute capability. Spills and shared memory in bytes."""

    capability: str
    kernel: str
    variant: str
    warps: int
    stages: int
    registers: int
    spill_stores: int
    spill_loads: int
    shared: int
    tensor_cores: str
    resident: str

    @classmethod
    def of(cls, capability: int, variant: str, launch: Launch) -> "Row":
        """Return that of a launch."""
        made = launch.compiled.metadata
        warps = resident_warps(capability, made.num_warps, launch.registers, made.shared)
        products = sorted(set(_PRODUCTS.findall(launch.compiled.asm["ptx"])))
        return cls(
            f"{capability // 10}.{capability % 10}",
            launch.kernel,
            variant,
            made.num_warps,
            made.num_stages,
            launch.registers,
            launch.spill_stores,
            launch.spill_loads,
            made.shared,
            ", ".join(product.removesuffix(".mma_async") for product in products) or "none",
            f"{warps} of {MULTIPROCESSORS[capability].warps}",
        )

    @property
    def fault(self) -> str | None:
        """What nobody has given a reason for; None where nothing is wrong."""
        name = f"{self.kernel} ({self.variant}) for {self.capability}"
        if self.resident.startswith("0 "):
            return f"{name} takes {self.shared} bytes of shared memory: no such device runs it"
        if max(self.spill_stores, self.spill_loads) <= FREE_BYTES:
            return None
        if reason_for(self.kernel, self.variant) is not None:
            return None
        return (
            f"{name} spills: {self.spill_stores} bytes of stores, {self.spill_loads} of loads, "
            f"more than {FREE_BYTES} without a reason in reasons.py"
        )


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Return `rows` kernel by kernel, as they come within one."""
    return sorted(rows, key=lambda row: (row.kernel, row.variant, row.capability))


def markdown(rows: Sequence[Row]) -> str:
    """Return a table."""
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(astuple(row) for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"
