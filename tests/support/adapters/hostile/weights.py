"""Files of tensors that no adapter may have."""

import gzip
import json
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np

from support.adapters.hostile.case import (
    Entries,
    GoodAdapter,
    HostileCase,
    converted,
    header_of,
    pack,
)

_MIB: Final = 1 << 20
_HUGE: Final = 1 << 40
_PLACES: Final[dict[str, Any]] = {
    "reversed": [64, 0],
    "negative": [-64, 0],
    "of text": ["0", "64"],
    "of halves": [0.0, 64.5],
    "one": [0],
    "three": [0, 1, 2],
    "none": None,
    "huge": [2**63, 2**63 + 1],
    "behind the end": [_HUGE, _HUGE + 1024],
    "empty": [0, 0],
    "an object": {"begin": 0},
}
_SHAPES: Final[dict[str, Any]] = {
    "one number": [256],
    "three numbers": [4, 8, 8],
    "nothing": [],
    "a zero": [0, 64],
    "negative": [-4, 64],
    "huge": [_HUGE, _HUGE],
    "one huge number": [2**62, 1],
    "of truth values": [True, 64],
    "of text": ["4", "64"],
    "of halves": [4.0, 64.0],
    "none": None,
    "nine numbers": [1] * 9,
    "a text": "4x64",
    "nested": [[4], [64]],
    "a million numbers": [1] * 1_000_000,
}
_DTYPES: Final = ("F64", "I8", "I32", "U8", "BOOL", "F8_E4M3", "f32", "", "F16", "BF16", None, 5)
_NAMES: Final = (
    *("lm_head.weight", "lora_A.weight", "base_model.model..lora_A.weight", "", "x" * 100_000),
    *("base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector",),
    *("base_model.model.model.embed_tokens.lora_embedding_A",),
    *("base_model.model.model.layers.0.self_attn.q_proj.lora_A.bias",),
    *("base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight",),
    *("base_model.model.lm_head.modules_to_save.weight", "a\nb", "a\0b", "a\ud800b", "../../x"),
)
_MODULES: Final = (
    *("model.layers.99.self_attn.q_proj", "model.layers.-1.self_attn.q_proj", "q_proj"),
    *("model.layers.00.self_attn.q_proj", "../../etc.q_proj", "model.layers.0\0.q_proj"),
    *(
        "a\nb.q_proj",
        "a\ud800b.q_proj",
        "x" * 100_000 + ".q_proj",
        "model.layers.0.mlp.gate.q_proj",
    ),
)
_PATTERNS: Final = {
    "F32": ("<u4", 0x7FC00000, 0x7F800000, 0xFF800000),
    "F16": ("<u2", 0x7E00, 0x7C00, 0xFC00),
    "BF16": ("<u2", 0x7FC0, 0x7F80, 0xFF80),
}


def hostile_weights(good: GoodAdapter) -> Iterator[HostileCase]:
    """Yield cases whose adapter_model.safetensors is at fault, beside good settings."""
    yield from _cut(good)
    yield from _described(good)
    yield from _named(good)
    yield from _not_finite(good)
    yield from _large(good)
    yield from _of_another_model(good)


def _cut(good: GoodAdapter) -> Iterator[HostileCase]:
    whole = pack(good.entries)
    start = 8 + int.from_bytes(whole[:8], "little")
    lengths = [*range(0, 12), *np.linspace(13, start, 12, dtype=int).tolist()]
    lengths += [*np.linspace(start + 1, len(whole) - 2, 12, dtype=int).tolist(), len(whole) - 1]
    for length in lengths:
        yield good.case(f"cut at {length}", weights=whole[:length])
    for place in range(0, start, start // 24):
        changed = bytearray(whole)
        changed[place] ^= 0x81
        yield good.case(f"byte {place}", weights=bytes(changed))
    for length in (0, 1, start - 9, start - 7, len(whole), 2**31, 2**63, 2**64 - 1):
        yield good.case(f"a header of {length}", weights=pack(good.entries, length=length))
    for number, extra in enumerate((b"\0", bytes(4096), whole)):
        yield good.case(f"more behind it {number}", weights=whole + extra)
    texts = {
        "a pickle": b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01K\x01s.",
        "a ZIP": b"PK\x03\x04" + bytes(1000),
        "gzip": gzip.compress(whole),
        "a page": b"<!DOCTYPE html><html>404</html>" * 100,
        "a pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        "GGUF": b"GGUF" + bytes(1000),
        "noise": np.random.default_rng(0).bytes(5000),
    }
    for title, data in texts.items():
        yield good.case(f"tensors: {title}", weights=data)


def _described(good: GoodAdapter) -> Iterator[HostileCase]:
    first, second = good.names[:2]
    for key, values in (("data_offsets", _PLACES), ("shape", _SHAPES)):
        for (title, value), name in product(values.items(), (first, second)):
            yield _with(good, f"{key} {title} {name[-8]}", name, {key: value})
    for number, dtype in enumerate(_DTYPES):
        yield _with(good, f"type {number}", first, {"dtype": dtype})
    header = header_of(good.entries)
    begin, end = header[second]["data_offsets"]
    for title, place in {
        "an overlap": header[first]["data_offsets"],
        "half an overlap": [begin - 8, end - 8],
        "a gap": [begin + 8, end + 8],
        "places of the last": header[good.names[-1]]["data_offsets"],
    }.items():
        yield _with(good, title, second, {"data_offsets": place})
    entries: tuple[Any, ...] = (None, 5, [], "x", {})
    for number, entry in enumerate(entries):
        other = {**header, first: entry}
        yield good.case(f"described by {number}", weights=pack(good.entries, other))
    for number, text in enumerate((b"", b"{}", b"[]", b"null", b"{" * 1000, b"\xff" * 100)):
        yield good.case(f"header {number}", weights=pack(good.entries, text))
    text = json.dumps(header).encode()
    twice = text[:-1] + b", " + json.dumps({first: header[first]}).encode()[1:]
    yield good.case("a tensor twice", weights=pack(good.entries, twice))
    twice = text.replace(b'"dtype": "F32"', b'"dtype": "F32", "dtype": "F32"', 1)
    yield good.case("a type twice", weights=pack(good.entries, twice))
    for depth in (900, *range(940, 1000, 6), 100_000):
        deep = b'{"a": {"dtype": ' + b"[" * depth + b"]" * depth + b"}}"
        yield good.case(f"a type of {depth} levels", weights=pack({}, deep))


def _named(good: GoodAdapter) -> Iterator[HostileCase]:
    for number, name in enumerate(_NAMES):
        more = {**good.entries, name: ("F32", [4, 4], bytes(64))}
        yield good.case(f"a tensor of name {number}", weights=pack(more))
    for name in good.names[:4]:
        fewer = {key: value for key, value in good.entries.items() if key != name}
        yield good.case(f"without {name[-40:]}", weights=pack(fewer))
    for number, module in enumerate(_MODULES):
        more = dict(good.entries)
        for end in ("A", "B"):
            key = f"base_model.model.{module}.lora_{end}.weight"
            more[key] = ("F32", [4, 4], bytes(64))
        yield good.case(f"a module of name {number}", weights=pack(more))


def _not_finite(good: GoodAdapter) -> Iterator[HostileCase]:
    for dtype, (kind, *patterns) in _PATTERNS.items():
        entries = good.entries if dtype == "F32" else converted(good.entries, dtype)
        for pattern, name in product(patterns, (good.names[0], good.names[-1])):
            _, shape, data = entries[name]
            for place in (0, -1):
                values = np.frombuffer(data, kind).copy()
                values[place] = pattern
                bad = {**entries, name: (dtype, shape, values.tobytes())}
                title = f"{dtype} {pattern:x} at {place} of {name[-8]}"
                yield good.case(title, weights=pack(bad))


def _large(good: GoodAdapter) -> Iterator[HostileCase]:
    entry = '"dtype":"F32","shape":[0,1],"data_offsets":[0,0]'
    tensors = ",".join(f'"{number:x}":{{{entry}}}' for number in range(66_000))
    for title, text in {
        "66000 tensors": b"{" + tensors.encode() + b"}",
        "a million objects": b"{" + b",".join(b'"%x":{}' % n for n in range(1_200_000)) + b"}",
        "5 million lists": b'{"a":{"dtype":[' + b"[]," * 5_000_000 + b"[]]}}",
        "7 million numbers": b'{"a":{"shape":[' + b"0," * 7_000_000 + b"0]}}",
        "a long text": b'{"a":{"dtype":"' + b"x" * (15 * _MIB) + b'"}}',
        "a long name": b'{"' + b"x" * (15 * _MIB) + b'":{}}',
        "a header of spaces": b" " * (15 * _MIB),
        "17 MiB": b" " * (17 * _MIB) + b"{}",
    }.items():
        yield good.case(title, weights=pack({}, text))


def _of_another_model(good: GoodAdapter) -> Iterator[HostileCase]:
    """Yield adapters that are whole, and do not fit the model."""
    for name in good.names[:8]:
        _, (rows, columns), _ = good.entries[name]
        at_inputs = name.endswith("lora_A.weight")
        for more in (-1, 1):
            shape = [rows, columns + more] if at_inputs else [rows + more, columns]
            data = bytes(4 * shape[0] * shape[1])
            other: Entries = {**good.entries, name: ("F32", shape, data)}
            title = f"{more:+} {name[-36:]}"
            yield good.case(title, weights=pack(other))
        stem = name[:-8]
        fewer = {key: value for key, value in good.entries.items() if not key.startswith(stem[:-6])}
        if at_inputs:
            yield good.case(f"lacks {stem[-30:]}", weights=pack(fewer))
    down, up = good.names[:2]
    inputs, outputs = good.entries[down][1][1], good.entries[up][1][0]
    for rank in (1, 3, 8, 16, 256):
        other = {
            **good.entries,
            down: ("F32", [rank, inputs], bytes(4 * rank * inputs)),
            up: ("F32", [outputs, rank], bytes(4 * rank * outputs)),
        }
        yield good.case(f"a tensor of rank {rank}", weights=pack(other))


def _with(good: GoodAdapter, title: str, name: str, changes: dict[str, Any]) -> HostileCase:
    header = header_of(good.entries)
    header[name] = {**header[name], **changes}
    return good.case(title, weights=pack(good.entries, header))
