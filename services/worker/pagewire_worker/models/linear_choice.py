"""Selects the implementation of a model's linear layers.

It is one that uses the weights as they are, or one that quantizes them while they are loaded.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.source import LoadSettings
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.layers.fp8 import Capability, check_fp8
from pagewire_worker.layers.linear import CodeKind, LinearKind, TorchLinear, pick_linear
from pagewire_worker.models.variants import BY_FLAG, KEEPING_CODES
from pagewire_worker.triton_kernels.availability import check_triton
from pagewire_worker.triton_kernels.packed_codes import packed_stack

LinearMaker = Callable[[ModelPlan, LoadSettings, Capability | None], LinearKind]
"""(plan, settings, compute capability of the device) -> layers."""


def choose_linears(
    name: str, plan: ModelPlan, settings: LoadSettings, capability: Capability | None
) -> LinearKind:
    """Return the layers called `name`, one of LINEARS.

    Raises:
        StartupError: They do not do for this model or on this device.
    """
    return LINEARS[name](plan, settings, capability)


def _by_flag(plan: ModelPlan, settings: LoadSettings, capability: Capability | None) -> LinearKind:
    return pick_linear(settings.linear_backend, settings.device, settings.dtype)


def _keeping_codes(
    plan: ModelPlan, settings: LoadSettings, capability: Capability | None
) -> LinearKind:
    """Return the same; matrices of codes stay codes, and are widened where they are multiplied."""
    check_triton("--attention-backend: triton", "attention_backend", settings.device)
    from pagewire_worker.layers.code_linear import NAME, CodeLinear

    linears = _by_flag(plan, settings, capability)
    return replace(linears, codes=CodeKind(NAME, CodeLinear.of, stack=packed_stack))


def _int8(plan: ModelPlan, settings: LoadSettings, capability: Capability | None) -> LinearKind:
    """Return int8 in transformer blocks; logits come from weights of the model's type.

    Int8 of a checkpoint are used as they are if each output has one scale.
    """
    check_triton("--attention-backend: triton", "attention_backend", settings.device)
    from pagewire_worker.layers.int8_linear import NAME, Int8Linear

    outputs = _by_flag(plan, settings, capability)
    return LinearKind(
        f"{NAME}+{outputs.name}",
        Int8Linear.quantized,
        outputs.output,
        outputs.is_batch_invariant,
        CodeKind("stored", Int8Linear.of, has_output=False),
    )


def _fp8(plan: ModelPlan, settings: LoadSettings, capability: Capability | None) -> LinearKind:
    """Return 8-bit floats in transformer blocks; logits come from weights of the model's type."""
    check_fp8(
        "--quantization: fp8",
        "quantization",
        settings.device,
        capability,
        instead="CPUs have int8 and int4",
    )
    from pagewire_worker.layers.fp8_linear import MULTIPLE, TYPES, Fp8Linear

    if settings.linear_backend not in ("auto", "torch"):
        raise _refused(f"--linear-backend {settings.linear_backend} computes with its own weights")
    if settings.dtype not in TYPES:
        dtype = str(settings.dtype).removeprefix("torch.")
        raise _refused(f"the model computes in {dtype}; give it --dtype bfloat16 or float16")
    for name, size in _sizes(plan):
        if size % MULTIPLE:
            raise _refused(f"{name} ({size}) is no multiple of {MULTIPLE}")
    return LinearKind("fp8", Fp8Linear, TorchLinear)


def _sizes(plan: ModelPlan) -> list[tuple[str, int]]:
    """Return what inputs and outputs of the layers are made of."""
    attention, latent = plan.attention, plan.attention.latent
    up = None if latent is None else latent.query_up
    return [
        ("hidden_size", plan.hidden_size),
        *(("intermediate_size", size) for size in sorted(plan.inner_sizes)),
        ("num_attention_heads * head_dim", attention.output.num_inputs),
        (
            "(num_attention_heads + 2 * num_key_value_heads) * head_dim"
            if latent is None
            else "q_lora_rank or num_attention_heads * qk_head_dim, + kv_lora_rank + "
            "qk_rope_head_dim",
            attention.qkv.num_outputs,
        ),
        *(
            ()
            if up is None
            else (
                ("q_lora_rank", up.num_inputs),
                ("num_attention_heads * qk_head_dim", up.num_outputs),
            )
        ),
    ]


def _refused(reason: str) -> StartupError:
    return StartupError(f"--quantization: fp8 does not do here: {reason}", field="quantization")


LINEARS: Mapping[str, LinearMaker] = {
    BY_FLAG: _by_flag,
    KEEPING_CODES: _keeping_codes,
    "int8": _int8,
    "fp8": _fp8,
}
"""Linear layers by the names of models/variants.py."""
