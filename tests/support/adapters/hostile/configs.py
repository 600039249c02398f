"""Settings that no adapter may have."""

import json
from collections.abc import Iterator
from typing import Any, Final

from support.adapters.hostile.case import GoodAdapter, HostileCase

_NAN, _INF = float("nan"), float("inf")
_VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "r": (0, -1, 17, 257, 10**9, 2**63, "4", "four", _NAN, _INF, 4.0, True, None, [4], {}),
    "lora_alpha": ("8", _NAN, _INF, -_INF, None, [8], True, 1e300, 10**400, {}),
    "peft_type": (None, "", "lora", "ADALORA", "IA3", "LOHA", "VERA", "OFT", 7, [], {"a": 1}),
    "bias": ("all", "lora_only", True, 1, ["none"]),
    "use_dora": (True, "yes", 1),
    "modules_to_save": (["lm_head"], "lm_head", {"a": 1}, 1),
    "fan_in_fan_out": (True, "x", 1),
    "use_rslora": ("x", 1, [1]),
    "target_modules": (
        *(None, "", [], {}, 5, [1], [""], [None], ["nothing"], ["q_pro"], ["embed_tokens"]),
        *(["lm_head"], ["q_proj", "model.embed_tokens"], ["q_proj"] * 5000, [["q_proj"]]),
    ),
    "rank_pattern": ([1], "x", {"q_proj": 0}, {"q_proj": "4"}, {"q_proj": 257}, {"q_proj": _NAN}),
    "alpha_pattern": ([1], "x", {"q_proj": _INF}, {"q_proj": "4"}, {"(a+)+$": 1}, {"q*": 1}),
    "layers_to_transform": ("x", -1, [-1], [0.5], [True], [[0]], {}, {"a": 1}),
    "exclude_modules": (5, [5], {"a": 1}, [""], ["q_proj"]),
    "init_lora_weights": ("pissa", "pissa_niter_4", "olora", "loftq", "corda", 5, [], {"a": 1}),
    "use_qalora": (True,),
    "lora_bias": (True,),
    "trainable_token_indices": ([1, 2],),
    "layer_replication": ([[0, 1]],),
    "target_parameters": (["mlp.experts.down_proj"],),
    "megatron_config": ({"a": 1},),
    "alora_invocation_tokens": ([1],),
    "made_up": (1, "x", [0], {"a": [0]}),
    "made\nup": (1,),
    "made\0up": (1,),
    "made\ud800up": (1,),
    "n" * 100_000: (1,),
}
_TEXTS: Final[dict[str, bytes]] = {
    "empty": b"",
    "a brace": b"{",
    "a list": b"[]",
    "null": b"null",
    "a number": b"1",
    "a text": b'"LORA"',
    "no UTF-8": b'{"r": "\xff\xfe\xc0"}',
    "quotes of Python": b"{'r': 4}",
    "a comma too many": b'{"r": 4,}',
    "two objects": b"{}{}",
    "a NUL byte": b'{"r": 4}\0',
    "zeros": bytes(4096),
    "open lists": b"[" * 500_000,
    "open objects": b'{"a":' * 200_000,
    "a large number": b'{"peft_type": "LORA", "r": ' + b"9" * 5000 + b"}",
    "a megabyte": b'{"a": "' + b"x" * (1 << 20) + b'"}',
    "YAML": b"peft_type: LORA\nr: 4\n",
    "a pickle": b"\x80\x04}q\0.",
}
DEPTHS: Final = (3, 100, 900, *range(940, 1000, 3), 5000, 100_000)
"""Levels of lists in each other; the interpreter bears about a thousand."""


def hostile_configs(good: GoodAdapter) -> Iterator[HostileCase]:
    """Yield cases whose adapter_config.json is at fault, beside good tensors."""
    for setting, values in _VALUES.items():
        for number, value in enumerate(values):
            # A name that no module of the model ends with selects nothing: tensors are left over.
            yield good.case(f"{setting[:20]} {number}", good.config_bytes(**{setting: value}))
    for title, text in _TEXTS.items():
        yield good.case(f"settings: {title}", text)
    text = good.config_bytes().rstrip(b"}")
    for depth in DEPTHS:
        nested = text + b', "made_up": ' + b"[" * depth + b"]" * depth + b"}"
        yield good.case(f"{depth} levels", nested)
        nested = text.replace(b'"r": 4', b'"r": ' + b"[" * depth + b"]" * depth) + b"}"
        yield good.case(f"a rank of {depth} levels", nested)
    for setting in ("r", "lora_alpha", "target_modules", "peft_type"):
        again = json.dumps({setting: good.config[setting]}).encode()[1:]
        yield good.case(f"{setting} twice", text + b", " + again)
