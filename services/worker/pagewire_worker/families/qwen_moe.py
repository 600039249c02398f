"""Qwen 2 and Qwen 3 with experts (Yang et al., 2024, 2025); Qwen 2 has a shared one beside them."""

from collections.abc import Sequence

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.expert_parts import (
    gated_experts,
    num_experts,
    shared_mlp,
    softmax_router,
    sparse_layers,
)
from pagewire_worker.families.fields import Data, activation, integer
from pagewire_worker.families.parts import (
    Family,
    Sizes,
    attention,
    gated_mlp,
    model_plan,
    pre_norm_layers,
    read_sizes,
    rms_norms,
)
from pagewire_worker.families.plan import AttentionSpec, ExpertsSpec, MlpSpec, ModelPlan
from pagewire_worker.families.rope import read_rope
from pagewire_worker.families.windows import (
    FULL,
    SLIDING,
    Windows,
    no_windows,
    one_window,
    window_of,
    windows_by_type,
)


def _windows2(data: Data) -> Windows:
    if not data.get("use_sliding_window"):
        return no_windows(data)
    num_sliding = integer(data, "max_window_layers", 28)
    numbers = range(integer(data, "num_hidden_layers"))
    pattern = [SLIDING if n % 2 == 0 and n < num_sliding else FULL for n in numbers]
    return windows_by_type(data, window_of(data), pattern)


def _windows3(data: Data) -> Windows:
    return one_window(data) if data.get("use_sliding_window") else no_windows(data)


def _plan(data: Data, windows: Sequence[int | None], *, is_third: bool) -> ModelPlan:
    sizes, acts, sparse = read_sizes(data), activation(data), sparse_layers(data)
    rope, norm = read_rope(data, sizes.head_dim), rms_norms(data, sizes.hidden)
    has_bias = bool(data.get("attention_bias")) if is_third else bool(data.get("qkv_bias", True))

    def attend(name: str, index: int) -> AttentionSpec:
        return attention(
            sizes,
            name,
            rope=rope,
            kind=AttentionKind(window=windows[index]),
            has_qkv_bias=has_bias,
            has_output_bias=has_bias and is_third,
            head_norm=rms_norms(data, sizes.head_dim) if is_third else None,
        )

    def mlp(name: str, index: int) -> MlpSpec | ExpertsSpec:
        if not sparse[index]:
            return gated_mlp(sizes, name, activation=acts)
        return _experts(data, sizes, name, has_shared=not is_third)

    return model_plan(data, pre_norm_layers(sizes, norm, attend, mlp), norm("model.norm"))


def _experts(data: Data, sizes: Sizes, name: str, *, has_shared: bool) -> ExpertsSpec:
    acts, count = activation(data), num_experts(data)
    shared = None
    if has_shared:
        size = integer(data, "shared_expert_intermediate_size")
        shared = shared_mlp(sizes, f"{name}.shared_expert", size, acts)
    return ExpertsSpec(
        router=softmax_router(
            data,
            sizes,
            f"{name}.gate",
            count,
            is_normalised=bool(data.get("norm_topk_prob")),
            gate=f"{name}.shared_expert_gate" if has_shared else None,
        ),
        experts=gated_experts(
            sizes,
            f"{name}.experts",
            count=count,
            size=integer(data, "moe_intermediate_size"),
            activation=acts,
        ),
        shared=shared,
        has_shared_gate=has_shared,
    )


FAMILIES = (
    Family(
        architecture="Qwen2MoeForCausalLM",
        read=lambda data: _plan(data, _windows2(data), is_third=False),
        gguf=("qwen2moe",),
        has_experts=True,
    ),
    Family(
        architecture="Qwen3MoeForCausalLM",
        read=lambda data: _plan(data, _windows3(data), is_third=True),
        gguf=("qwen3moe",),
        has_experts=True,
    ),
)
