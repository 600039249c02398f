"""Tables of a command: printed in Markdown as they come, written as JSON with `--output`."""

import argparse
import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

from pagewire import __version__

Cell = str | int | float | None
"""None for what was not measured."""

Row = dict[str, Cell]
"""Cells by column."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a command ran, and when."""

    device: str
    torch_version: str
    cuda_version: str | None
    triton_version: str
    pagewire_version: str
    date: str

    @classmethod
    def here(cls, device: torch.device) -> "Machine":
        """Return this one, now."""
        is_cuda = device.type == "cuda"
        return cls(
            device=torch.cuda.get_device_name(device) if is_cuda else "CPU, Triton interpreted",
            torch_version=torch.__version__,
            cuda_version=torch.version.cuda,
            triton_version=version("triton"),
            pagewire_version=__version__,
            date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )

    def line(self) -> str:
        """Return it in one line."""
        cuda = f" (CUDA {self.cuda_version})" if self.cuda_version else ""
        return (
            f"{self.device}; torch {self.torch_version}{cuda}, triton {self.triton_version}, "
            f"pagewire {self.pagewire_version}; {self.date}"
        )


class Report:
    """What a command found.

    Written again with each table, so that what is cut short leaves what it had.
    """

    def __init__(self, arguments: argparse.Namespace, device: torch.device) -> None:
        self._path: Path | None = arguments.output
        machine = Machine.here(device)
        self._content: dict[str, object] = {
            "command": sys.argv,
            "machine": {name: getattr(machine, name) for name in Machine.__slots__},
            "tables": [],
            "notes": [],
        }
        self._tables: list[object] = []
        self._notes: list[str] = []
        print(machine.line(), flush=True)

    def add(self, title: str, rows: list[Row]) -> None:
        """Print a table; all rows have the columns of the first."""
        columns = list(rows[0])
        assert all(list(row) == columns for row in rows)
        print(f"\n{title}\n")
        print("| " + " | ".join(columns) + " |")
        print("| " + " | ".join("---" for _ in columns) + " |")
        for row in rows:
            print("| " + " | ".join(map(shown, row.values())) + " |", flush=True)
        self._tables.append({"title": title, "rows": rows})
        self._write()

    def note(self, text: str) -> None:
        """Print what a reader of the tables has to know."""
        print(f"\n{text}", flush=True)
        self._notes.append(text)
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            content = {**self._content, "tables": self._tables, "notes": self._notes}
            self._path.write_text(json.dumps(content, indent=1))


def shown(cell: Cell) -> str:
    """Return a cell as text: floats with three digits."""
    if cell is None:
        return "-"
    if not isinstance(cell, float):
        return str(cell)
    if abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:.3g}"
