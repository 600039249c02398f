"""Says from config.json whether the quantized weights of a checkpoint are read."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pagewire_shared.errors import StartupError

METHODS: Final = (
    *("awq", "bitsandbytes", "compressed-tensors", "fbgemm_fp8", "fp8", "gguf", "gptq"),
    "mxfp4",
)
"""Values of quant_method that are read; "gguf" is in a config.json that was made of a GGUF file."""

_BITS: Final[Mapping[str, tuple[int, ...]]] = {"awq": (4,), "gptq": (2, 4, 8)}
_COMPRESSED: Final = (
    *("dense", "float-quantized", "int-quantized", "mixed-precision", "naive-quantized"),
    "pack-quantized",
)
_STRATEGIES: Final = ("tensor", "channel", "group", "block")

Settings = Mapping[str, Any]


def quantization_of(data: Mapping[str, Any]) -> Settings | None:
    """Return the settings of quantized weights, or None for plain weights.

    Those of a text model may be in its text_config.
    """
    for source in (data, _mapping(data.get("text_config"))):
        settings = source.get("quantization_config") or source.get("compression_config")
        if settings:
            return settings if isinstance(settings, Mapping) else {}
    return None


def config_groups(settings: Settings) -> list[dict[str, Any]]:
    """Return the groups of layers of compressed-tensors, each with its `weights`."""
    groups = map(_mapping, _mapping(settings.get("config_groups")).values())
    return [{**group, "weights": _mapping(group.get("weights"))} for group in groups]


FP8_CACHE: Final = "fp8_e4m3"
"""A KV cache of 8-bit floats with a scale for the keys of a layer and one for its values."""


def cache_scheme(data: Mapping[str, Any]) -> str | None:
    """Return the KV cache that a checkpoint was made for: FP8_CACHE, other words, or None.

    Sources: `kv_cache_scheme` of compressed-tensors (QuantizationArgs), which is "static" in
    checkpoints of AutoFP8; checked like CompressedTensorsKVCacheMethod of vLLM.
    """
    scheme = (quantization_of(data) or {}).get("kv_cache_scheme")
    if not scheme:
        return None
    if scheme == "static":
        return FP8_CACHE
    said = _mapping(scheme)
    bits, kind = said.get("num_bits", 8), said.get("type", "int")
    strategy, is_dynamic = said.get("strategy") or "tensor", bool(said.get("dynamic"))
    is_symmetric = said.get("symmetric", True) is not False
    if (bits, kind, strategy, is_dynamic, is_symmetric) == (8, "float", "tensor", False, True):
        return FP8_CACHE
    how = " as they come" * is_dynamic + " with zero points" * (not is_symmetric)
    return f"{kind} of {bits} bits with a scale per {strategy}{how}"[:64]


def check_quantization(data: Mapping[str, Any]) -> None:
    """Raise StartupError for quantized weights that are not read; the message says what is."""
    settings = quantization_of(data)
    if settings is None:
        return
    method = settings.get("quant_method")
    if method not in METHODS:
        raise _fault(
            f"its weights are quantized with {method or 'an unknown method'}, which is not read;"
            f" {', '.join(METHODS)} are"
        )
    bits = settings.get("bits", settings.get("w_bit"))
    known = _BITS.get(method)
    if known and bits is not None and bits not in known:
        raise _fault(f"{method} with {bits} bits is not read; {_either(known)} are")
    check = _CHECKS.get(method)
    if check is not None:
        check(settings)


def _check_awq(settings: Settings) -> None:
    version = str(settings.get("version", "gemm")).lower()
    if version != "gemm":
        raise _fault(f"AWQ of version {version!r} is not read; 'gemm' is")
    if settings.get("zero_point") is False:
        raise _fault("AWQ without zero points is not read")


def _check_gptq(settings: Settings) -> None:
    layout = settings.get("checkpoint_format") or "gptq"
    if layout not in ("gptq", "gptq_v2"):
        raise _fault(f"GPTQ in the layout {layout!r} is not read; 'gptq' and 'gptq_v2' are")


def _check_compressed(settings: Settings) -> None:
    groups = config_groups(settings)
    formats = [settings.get("format"), *(one.get("format") for one in groups)]
    for name in filter(None, formats):
        if name not in _COMPRESSED:
            raise _fault(
                f"compressed-tensors in the format {name!r} are not read;"
                f" {_either(_COMPRESSED)} are"
            )
    if _mapping(settings.get("sparsity_config")).get("format", "dense") != "dense":
        raise _fault("compressed-tensors with sparse weights are not read")
    if settings.get("transform_config"):
        raise _fault("compressed-tensors with transforms are not read")
    for group in groups:
        weights = group["weights"]
        _check_block(weights.get("block_structure"), "block_structure")
        strategy, bits = weights.get("strategy", "tensor"), weights.get("num_bits", 8)
        if strategy not in _STRATEGIES:
            raise _fault(
                f"compressed-tensors with a scale per {strategy} are not read;"
                f" {_either(_STRATEGIES)} are"
            )
        if bits not in (4, 8) or (weights.get("type") == "float" and bits != 8):
            kind = weights.get("type", "int")
            raise _fault(
                f"compressed-tensors with weights of {bits} bits ({kind}) are not read; int of 4"
                " and 8 and float of 8 are"
            )


def _check_fp8(settings: Settings) -> None:
    _check_block(settings.get("weight_block_size"), "weight_block_size")


def _check_block(sizes: Any, name: str) -> None:
    is_pair = isinstance(sizes, list | tuple) and len(sizes) == 2
    if sizes and not (is_pair and all(isinstance(one, int) and one > 0 for one in sizes)):
        raise _fault(f"{name} must be two sizes, got {str(sizes)[:64]}")


def _mapping(value: Any) -> Settings:
    return value if isinstance(value, Mapping) else {}


_CHECKS: Final[Mapping[str, Callable[[Settings], None]]] = {
    "awq": _check_awq,
    "compressed-tensors": _check_compressed,
    "fp8": _check_fp8,
    "gptq": _check_gptq,
}


def _either(known: tuple[Any, ...]) -> str:
    *first, last = map(str, known)
    return f"{', '.join(first)} and {last}" if first else last


def _fault(text: str) -> StartupError:
    return StartupError(f"--model: {text} (quantization_config)", field="model")
