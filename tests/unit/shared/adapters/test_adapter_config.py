"""Settings of adapters: factors, targets, and the refusals by name."""

import json
import math
from typing import Any

import pytest

from pagewire_shared.adapters.adapter_config import AdapterConfig, read_adapter_config
from pagewire_shared.adapters.adapter_error import AdapterError
from support.adapters.adapter_files import CONFIG


def read(**changes: Any) -> AdapterConfig:
    return read_adapter_config(json.dumps(CONFIG | changes).encode())


def test_factors() -> None:
    assert read().scaling("a.q_proj", 4) == 2
    assert read(use_rslora=True).scaling("a.q_proj", 4) == 4
    config = read(rank_pattern={"q_proj": 16}, alpha_pattern={"^model\\.a.q_proj$": 4})
    assert config.max_rank == 16
    assert config.scaling("model.a.q_proj", 16) == 1 / 4
    assert config.scaling("model.b.q_proj", 4) == 2
    rooted = read(use_rslora=True, alpha_pattern={"q_proj": 3})
    assert rooted.scaling("x.q_proj", 9) == pytest.approx(3 / math.sqrt(9))


def test_targets() -> None:
    config = read(layers_to_transform=[1, 3], target_modules=["q_proj", "mlp.up_proj"])
    assert config.expects("layers.1.q_proj", 1)
    assert not config.expects("layers.2.q_proj", 2)
    assert config.expects("layers.1.mlp.up_proj", 1)
    assert not config.expects("layers.1.other.up_proj", 1)
    assert not config.allows("layers.1.xq_proj")
    assert not read(exclude_modules=["q_proj"]).expects("a.q_proj", 0)
    assert not read(exclude_modules=["a.q_proj"]).allows("b.a.q_proj")


def test_patterns_are_not_run() -> None:
    config = read(target_modules="(a+)+$")
    assert config.allows("a" * 100 + "b")
    assert not config.expects("a" * 100, 0)
    assert not read(exclude_modules="(a+)+$").expects("x.q_proj", 0)


def test_settings_for_training_are_not_read() -> None:
    read(
        lora_dropout=0.5,
        megatron_config=None,
        use_dora=False,
        runtime_config={"x": 1},
        eva_config={"rho": 2},
        qalora_group_size=16,
        arrow_config=None,
        target_parameters=None,
        init_lora_weights="gaussian",
    )


BAD: list[tuple[str, Any]] = [
    ("peft_type", "LOKR"),
    ("peft_type", "IA3"),
    ("peft_type", None),
    ("peft_type", ["LORA"]),
    ("r", 0),
    ("r", 257),
    ("r", "8"),
    ("r", True),
    ("r", 1e300),
    ("lora_alpha", "16"),
    ("lora_alpha", None),
    ("lora_alpha", float("nan")),
    ("lora_alpha", float("inf")),
    ("lora_alpha", 10**400),
    ("use_rslora", "yes"),
    ("bias", "all"),
    ("bias", "lora_only"),
    ("fan_in_fan_out", True),
    ("modules_to_save", ["lm_head"]),
    ("modules_to_save", "lm_head"),
    ("use_dora", True),
    ("lora_bias", True),
    ("use_qalora", True),
    ("layer_replication", [[0, 4], [2, 5]]),
    ("trainable_token_indices", [1]),
    ("target_parameters", ["mlp.router.weight"]),
    ("alora_invocation_tokens", [1, 2]),
    ("arrow_config", {"top_k": 3}),
    ("setting_of_the_future", 1),
    ("init_lora_weights", "pissa"),
    ("init_lora_weights", "pissa_niter_4"),
    ("init_lora_weights", "olora"),
    ("init_lora_weights", 1),
    ("target_modules", None),
    ("target_modules", []),
    ("target_modules", [1]),
    ("target_modules", {"q_proj": 1}),
    ("target_modules", ["a"] * 5000),
    ("exclude_modules", [None]),
    ("layers_to_transform", ["1"]),
    ("layers_to_transform", [-1]),
    ("layers_to_transform", [True]),
    ("rank_pattern", {"q_proj": 0}),
    ("rank_pattern", {"q_proj": 1000}),
    ("rank_pattern", [1]),
    ("alpha_pattern", {"q_proj": "x"}),
    ("alpha_pattern", {"(a+)+": 1}),
    ("alpha_pattern", {"": 1}),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_refusals_name_the_setting(name: str, value: Any) -> None:
    with pytest.raises(AdapterError) as caught:
        read(**{name: value})
    assert caught.value.field == name
    assert name in caught.value.message
    assert len(caught.value.message) < 400


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"1", b"\xff\xfe", b"[" * 100_000, b" " * (2 << 20)]
)
def test_broken_files(data: bytes) -> None:
    with pytest.raises(AdapterError) as caught:
        read_adapter_config(data)
    assert caught.value.field == "adapter_config.json"


def test_the_largest_rank_is_a_limit() -> None:
    with pytest.raises(AdapterError, match="rank 4 is more than 3"):
        read_adapter_config(json.dumps(CONFIG).encode(), max_rank=3)
