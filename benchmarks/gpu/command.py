"""What the commands of this folder share: their flags, and where they run.

Has to be imported before anything of pagewire_worker: with `--toy` kernels run in Triton's
interpreter, which is decided when they are imported.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from shapes import SHAPES, TOY, Shape

IS_TOY = "--toy" in sys.argv[1:]
if IS_TOY:
    os.environ["TRITON_INTERPRET"] = "1"
    # Tiny tensors: threads that wait for each other would be all that is measured.
    torch.set_num_threads(1)

Result = TypeVar("Result")


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags that all commands have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--toy", action="store_true", help="a tiny model on the CPU, interpreted")
    parser.add_argument("--output", type=Path, help="also write the results there, as JSON")
    return parser


def add_shapes(parser: argparse.ArgumentParser, default: list[str]) -> None:
    """Add --shapes, which a toy run does not look at."""
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=default)


def shapes_of(arguments: argparse.Namespace) -> list[Shape]:
    """Return what --shapes names, or the shape of toy runs."""
    return [TOY] if IS_TOY else [SHAPES[name] for name in arguments.shapes]


def device() -> torch.device:
    """Return where to run. Exits where there is no CUDA device and no toy was asked for."""
    if IS_TOY:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise SystemExit("needs a CUDA device; --toy runs the same on a CPU at a tiny shape")
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise SystemExit("TRITON_INTERPRET=1 is set: kernels would not run on the device")
    return torch.device("cuda")


def dtype() -> torch.dtype:
    """Return the type of weights and cache."""
    return torch.float32 if IS_TOY else torch.bfloat16


def in_fresh_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Return what `function` of a module returns in a process that ends then, and with it whatever
    it had of the device's memory. A toy run, which has none, calls it here."""
    if IS_TOY:
        return function(*arguments)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()
