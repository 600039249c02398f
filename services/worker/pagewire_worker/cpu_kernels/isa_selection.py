"""Selects the instruction set of the kernels: the fastest one that runs here, by measurement.

The newest set is not the fastest everywhere: VDPBF16PS does as much per cycle as two float32
multiply-adds on some processors, and half as much on others. All sets are exact, but they round
differently, so blocks of one set are useless for another. The set is part of the numerics
fingerprint, and two workers on equal machines must choose alike. See
docs/adr/0024-instruction-sets-are-measured.md.
"""

import hashlib
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pagewire_worker.cpu_kernels import abi, build
from pagewire_worker.cpu_kernels.library import (
    EMULATED,
    TYPES,
    KernelPool,
    instruction_sets,
    pointer,
)
from pagewire_worker.cpu_kernels.packing import PackedWeights, Part, Storage, WeightArena, pack
from pagewire_worker.host.cpu import processor_identity
from pagewire_worker.host.kept_facts import KeptFacts

CLEAR_WIN = 1.1
"""Minimum speed of a later set with prompts, relative to the first set. Measured values are far
from it on both sides: 1.2 and 0.5."""

NO_LOSS = 0.9
"""Minimum relative speed with single tokens: memory limits them, and all sets are about equal."""

REPEATS = 11
PROMPT_ROWS, TOKEN_ROWS = 64, 1
OUTPUTS, INPUTS = 512, 1024
TOKEN_CALLS = 8
"""Products of one row that are timed together: a single one is too short for the clock."""

_KINDS = {"int8": abi.INT8, "int4": abi.INT4}


@dataclass(frozen=True, slots=True)
class Speeds:
    """Speed relative to the first set, with prompts and with single tokens."""

    prompt: float
    token: float


def choose_instruction_set(dtype: torch.dtype, quantization: str, folder: Path) -> tuple[str, str]:
    """Return the set to use for models of this type, and a text on how it was found.

    Args:
        quantization: Type of weights: none, int8 or int4.

    Raises:
        KernelsMissingError: There are no kernels, or no instruction set runs.
    """
    names = [name for name in instruction_sets() if name != EMULATED]
    facts = [names, str(dtype), quantization, build.source_hash(), processor_identity()]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    kept = KeptFacts(folder / "instruction_sets.json")
    known = kept.get(key)
    if known in names:
        return str(known), "measured at an earlier start"
    if len(names) == 1:
        return names[0], "there is no other"
    speeds = measure(names, dtype, _KINDS.get(quantization, TYPES[dtype]))
    name = fastest(names, speeds)
    kept.keep(key, name)
    return name, _reason(names[0], name, speeds)


def fastest(names: list[str], speeds: Mapping[str, Speeds]) -> str:
    """Return the first of `names`, unless another is clearly faster with prompts.

    The other must also be no slower with single tokens.
    """
    winners = {
        name: speed.prompt
        for name, speed in speeds.items()
        if speed.prompt >= CLEAR_WIN and speed.token >= NO_LOSS
    }
    return max(winners, key=winners.__getitem__) if winners else names[0]


def measure(names: list[str], dtype: torch.dtype, kind: int) -> dict[str, Speeds]:
    """Return the relative speed of all but the first of `names`, one thread each.

    They take turns, and the medians of ratios count: other work on the machine affects all alike.
    """
    products = [_Product(name, dtype, kind) for name in names]
    prompts: list[list[float]] = [[] for _ in names]
    tokens: list[list[float]] = [[] for _ in names]
    for _ in range(REPEATS):
        for product, prompt, token in zip(products, prompts, tokens, strict=True):
            prompt.append(product.seconds(PROMPT_ROWS, 1))
            token.append(product.seconds(TOKEN_ROWS, TOKEN_CALLS))
    return {
        name: Speeds(_times_as_fast(prompts[0], prompt), _times_as_fast(tokens[0], token))
        for name, prompt, token in zip(names[1:], prompts[1:], tokens[1:], strict=True)
    }


def _times_as_fast(first: list[float], other: list[float]) -> float:
    return statistics.median(one / two for one, two in zip(first, other, strict=True))


class _Product:
    """A product over one megabyte of weights in bfloat16, by one instruction set."""

    def __init__(self, name: str, dtype: torch.dtype, kind: int) -> None:
        self._pool, self._type = KernelPool(1, name), TYPES[dtype]
        storage = Storage.of(kind, OUTPUTS, INPUTS)
        weight = torch.linspace(-1, 1, OUTPUTS * INPUTS).view(OUTPUTS, INPUTS).to(dtype)
        self._linear: PackedWeights = pack(
            self._pool, WeightArena(storage.num_bytes), storage, [Part(weight)]
        )
        self._x = weight[:PROMPT_ROWS].contiguous()
        self._y = torch.empty(PROMPT_ROWS, OUTPUTS)
        self._quantized: Tensor = torch.empty(
            PROMPT_ROWS * storage.prepared_row_bytes, dtype=torch.uint8
        )
        self.seconds(PROMPT_ROWS, 1)

    def seconds(self, num_rows: int, num_calls: int) -> float:
        """Return the CPU time of this thread for `num_calls` products of `num_rows` rows."""
        structure = self._linear.structure()
        pointers = pointer(self._quantized), pointer(self._y)
        began = time.thread_time()
        for _ in range(num_calls):
            self._pool.linear(self._type, structure, pointer(self._x), num_rows, *pointers, OUTPUTS)
        return max(time.thread_time() - began, 1e-9)


def _reason(first: str, name: str, speeds: Mapping[str, Speeds]) -> str:
    if name == first:
        return "no other is clearly faster, as measured now"
    speed = speeds[name]
    return f"{speed.prompt:.2f} times as fast with prompts as {first}, as measured now"
