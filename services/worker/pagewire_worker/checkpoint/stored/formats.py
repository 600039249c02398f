"""Chooses the format of a checkpoint's matrices from its config.json."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.model_files.folder import GGUF_INDEX_NAME
from pagewire_shared.model_files.quantization import (
    check_quantization,
    config_groups,
    quantization_of,
)
from pagewire_worker.checkpoint.stored.awq import AwqFormat
from pagewire_worker.checkpoint.stored.bitsandbytes import BitsAndBytesFormat
from pagewire_worker.checkpoint.stored.compressed_tensors import CompressedTensorsFormat
from pagewire_worker.checkpoint.stored.float8 import Float8Format
from pagewire_worker.checkpoint.stored.gptq import GptqFormat
from pagewire_worker.checkpoint.stored.mxfp4 import Mxfp4Format
from pagewire_worker.checkpoint.stored.parts import StoredFormat

Settings = Mapping[str, Any]


def stored_format(data: Mapping[str, Any]) -> StoredFormat | None:
    """Return the format that config.json names; None for plain matrices.

    Raises:
        StartupError: The method is not known, or does something that is not read.
    """
    check_quantization(data)
    settings = quantization_of(data)
    return None if settings is None else _FORMATS[settings["quant_method"]](settings)


def _gptq(settings: Settings) -> StoredFormat:
    return GptqFormat(is_v2=settings.get("checkpoint_format") == "gptq_v2")


def _fp8(settings: Settings) -> StoredFormat:
    return Float8Format(_block(settings.get("weight_block_size")))


def _compressed(settings: Settings) -> StoredFormat:
    blocks = (_block(one["weights"].get("block_structure")) for one in config_groups(settings))
    return CompressedTensorsFormat(next(filter(None, blocks), None))


def _gguf(_: Settings) -> StoredFormat:
    # Files with an index never come here.
    raise StartupError(
        f"config.json says gguf, but there is no {GGUF_INDEX_NAME}: serve the GGUF file itself",
        field="model",
    )


def _block(sizes: Any) -> tuple[int, int] | None:
    return (int(sizes[0]), int(sizes[1])) if sizes else None


_FORMATS: Final[Mapping[str, Callable[[Settings], StoredFormat]]] = {
    "awq": lambda _: AwqFormat(),
    "bitsandbytes": lambda _: BitsAndBytesFormat(),
    "compressed-tensors": _compressed,
    "fbgemm_fp8": _fp8,
    "fp8": _fp8,
    "gguf": _gguf,
    "gptq": _gptq,
    "mxfp4": lambda _: Mxfp4Format(),
}
