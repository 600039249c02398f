"""The table of how native models run: architecture, device, attention and quantization select a
decoder, its linear layers and whether its decodes are captured in graphs."""

from collections.abc import Mapping
from dataclasses import dataclass

from pagewire_shared.errors import StartupError
from pagewire_worker.families.fields import UnsupportedModelError
from pagewire_worker.families.registry import FAMILIES

FUSED = "fused"
"""The kernels for CPUs: a decoder with attention and linear layers of its own."""

TRITON = "triton"
"""The kernels for CUDA: a decoder, and the attention that it needs."""

BY_FLAG = "by flag"
"""Linear layers that --linear-backend selects."""

KEEPING_CODES = "by flag, keeping codes"
"""The same for matrices of values; those of codes stay codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One row of the table.

    Attributes:
        decoder: FUSED, or a key of DECODERS in loading/native_source.py.
        architectures: Names in config.json of the models that the decoder computes.
        devices: Types of device that it runs on; kernels of Triton run in the interpreter on CPUs.
        attention: Names of the implementations that it works with.
        linears: Quantization to linear layers: FUSED, or a key of LINEARS in
            models/linear_choice.py.
        graphs: Types of device on which its decodes are captured.
    """

    decoder: str
    architectures: tuple[str, ...]
    devices: tuple[str, ...]
    attention: tuple[str, ...]
    linears: Mapping[str, str]
    graphs: tuple[str, ...] = ()


ALL_FAMILIES = tuple(FAMILIES)
"""A row without a family, for a part that its decoder does not compute, leaves it out here."""

WITH_EXPERTS = tuple(name for name, family in FAMILIES.items() if family.has_experts)
"""Families whose experts are one product on Triton, of values only."""

WITHOUT_EXPERTS = tuple(name for name in ALL_FAMILIES if name not in WITH_EXPERTS)

VARIANTS: tuple[Variant, ...] = (
    Variant(
        decoder=FUSED,
        architectures=ALL_FAMILIES,
        devices=("cpu",),
        attention=(FUSED,),
        linears={"none": FUSED, "int8": FUSED, "int4": FUSED, "int8-output": FUSED},
    ),
    Variant(
        decoder=TRITON,
        architectures=WITHOUT_EXPERTS,
        devices=("cpu", "cuda"),
        attention=(TRITON,),
        linears={"none": KEEPING_CODES, "int8": "int8", "fp8": "fp8"},
        graphs=("cuda",),
    ),
    Variant(
        decoder=TRITON,
        architectures=WITH_EXPERTS,
        devices=("cpu", "cuda"),
        attention=(TRITON,),
        linears={"none": KEEPING_CODES},
        graphs=("cuda",),
    ),
    Variant(
        decoder="torch",
        architectures=ALL_FAMILIES,
        devices=("cpu", "cuda"),
        attention=("reference", "sdpa"),
        linears={"none": BY_FLAG, "fp8": "fp8"},
    ),
)


def find_variant(*, architecture: str, device: str, attention: str, quantization: str) -> Variant:
    """Return the row for a model and its settings.

    Args:
        architecture: Of the model, as in config.json.
        attention: Name of the implementation; not "auto".

    Raises:
        UnsupportedModelError: No row has the architecture.
        StartupError: No row of the architecture has what a setting asks for.
    """
    rows = variants_of(architecture)
    if not rows:
        raise UnsupportedModelError(
            f"config.json: architecture {architecture} has no native decoder", field="model"
        )
    for field, wanted in (
        ("attention_backend", attention),
        ("device", device),
        ("quantization", quantization),
    ):
        rows = [row for row in rows if wanted in _offered(row, field)]
        if not rows:
            flag = field.replace("_", "-")
            chosen = "" if field == "attention_backend" else f" with {attention} attention"
            raise StartupError(
                f"--{flag}: {wanted} has no decoder for {architecture}{chosen}", field=field
            )
    return rows[0]


def variants_of(architecture: str, decoder: str | None = None) -> list[Variant]:
    """Return the rows of an architecture, only those of one `decoder` where it is given."""
    rows = [row for row in VARIANTS if architecture in row.architectures]
    return [row for row in rows if decoder in (None, row.decoder)]


def decoders_with(architecture: str, quantization: str) -> set[str]:
    """Return the names of the decoders that compute an architecture in `quantization`."""
    return {row.decoder for row in variants_of(architecture) if quantization in row.linears}


def attention_names(architecture: str, device: str) -> set[str]:
    """Return the implementations of attention that an architecture has on a type of device."""
    rows = (row for row in variants_of(architecture) if device in row.devices)
    return {name for row in rows for name in row.attention}


def _offered(row: Variant, field: str) -> tuple[str, ...]:
    if field == "attention_backend":
        return row.attention
    return row.devices if field == "device" else tuple(row.linears)
