"""Writes the small quantized checkpoints beside this file, each with the format's own library.

    python tests/support/quantized/write.py [FORMAT ...]

needs an environment of its own with torch, transformers, safetensors, accelerate, bitsandbytes
0.50, compressed-tensors 0.20, AutoAWQ 0.2.9 and GPTQModel 7.7. Each folder gets the checkpoint, and
in expected.safetensors the logits that transformers computes in float32 with the weights that the
library itself dequantizes. The checkpoints have random weights.
"""

import json
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

FOLDER = Path(__file__).parent
GROUP = 32
TOKENS = [(7 * position + 3) % 128 for position in range(24)]
SHAPE: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
Tensors = dict[str, Tensor]
Quantized = tuple[Tensors, Tensor]
"""Tensors of a linear layer by the names behind its own, and the weight that they stand for."""


def plain_model() -> Qwen3ForCausalLM:
    """Return the model with random weights; logits depend on every layer."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SHAPE)).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.15)
    return model


def linears(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Yield the linear layers that formats quantize: all but the last."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "lm_head":
            yield name, module


def write(name: str, config: dict[str, Any], quantize: Callable[[nn.Linear], Quantized]) -> None:
    """Write a checkpoint whose linear layers are replaced by what `quantize` returns."""
    model = plain_model()
    tensors = {key: value.half() for key, value in model.state_dict().items()}
    for place, linear in linears(model):
        del tensors[f"{place}.weight"]
        stored, weight = quantize(linear)
        tensors |= {f"{place}.{key}": value.contiguous() for key, value in stored.items()}
        linear.weight.data = weight.float()
    save(name, model, tensors, config)


def save(name: str, model: Qwen3ForCausalLM, tensors: Tensors, config: dict[str, Any]) -> None:
    """Write a folder; `model` has the dequantized weights."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    quantized = {f"{place}.weight" for place, _ in linears(model)}
    for key, parameter in model.named_parameters():
        if key not in quantized:
            parameter.data = tensors[key].float()
    with torch.inference_mode():
        logits = model(torch.tensor([TOKENS])).logits[0]
    data = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **SHAPE}
    data |= {"rms_norm_eps": model.config.rms_norm_eps, "rope_theta": 10000.0}
    data |= {"torch_dtype": "float16", "quantization_config": config}
    (folder / "config.json").write_text(json.dumps(data, indent=1) + "\n")
    save_file({key: value.clone() for key, value in tensors.items()}, folder / "model.safetensors")
    save_file({"logits": logits.contiguous()}, folder / "expected.safetensors")
    print(name, sum(file.stat().st_size for file in folder.iterdir()))


def ranges(weight: Tensor, bits: int, *, is_symmetric: bool) -> tuple[Tensor, Tensor]:
    """Return scales and unsigned zero points [outputs, groups] of a weight."""
    grouped = weight.view(len(weight), -1, GROUP)
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    if is_symmetric:
        high = torch.maximum(-low, high)
        low = -high
    scales = ((high - low) / (2**bits - 1)).half().float()
    zeros = torch.full_like(scales, 2 ** (bits - 1)) if is_symmetric else torch.round(-low / scales)
    return scales, zeros


def awq() -> None:
    """AutoAWQ's WQLinear_GEMM; the package itself does not load beside new transformers."""
    import importlib.util

    root = Path(str(importlib.util.find_spec("awq").submodule_search_locations[0]))  # type: ignore
    for name in ("awq", "awq.modules", "awq.modules.linear", "awq.utils"):
        module = types.ModuleType(name)
        module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm

    def quantize(linear: nn.Linear) -> Quantized:
        scales, zeros = ranges(linear.weight.data, 4, is_symmetric=False)
        packed = WQLinear_GEMM.from_linear(
            linear, 4, GROUP, scales=scales.T.contiguous(), zeros=zeros.T.contiguous()
        )
        stored = {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}
        weight = dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, GROUP)
        return stored, weight.T

    settings = {"bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
    write("awq", {"quant_method": "awq", **settings}, quantize)


def gptq(name: str, bits: int, *, is_symmetric: bool, is_v1: bool, has_order: bool) -> None:
    """GPTQModel's layer for torch."""
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module

    def quantize(linear: nn.Linear) -> Quantized:
        size = linear.in_features
        scales, zeros = ranges(linear.weight.data, bits, is_symmetric=is_symmetric)
        order = torch.arange(size) // GROUP
        if has_order:
            order = order[torch.randperm(size)]
        layer = TorchLinear(
            bits, GROUP, is_symmetric, has_order, size, linear.out_features, register_buffers=True
        )
        layer.pack_original(linear, scales, zeros, order.int())
        layer.post_init()
        # In float32 rather than in the type of the scales.
        halves = layer.scales
        layer.scales = halves.float()
        weight = layer.dequantize_weight().T.float()
        layer.scales = halves
        if is_v1:
            said = types.SimpleNamespace(bits=bits, pack_dtype=torch.int32)
            convert_gptq_v2_to_v1_format_module(layer, said)
        names = ("qweight", "qzeros", "scales", "g_idx")
        return {key: getattr(layer, key).clone() for key in names}, weight

    settings = {"bits": bits, "group_size": GROUP, "desc_act": has_order, "sym": is_symmetric}
    layout = "gptq" if is_v1 else "gptq_v2"
    write(name, {"quant_method": "gptq", "checkpoint_format": layout, **settings}, quantize)


def compressed(name: str, compressor: str, **weights: Any) -> None:
    """compressed-tensors' compressors."""
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    arguments = QuantizationArgs(**weights)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    packer = BaseCompressor.get_value_from_registry(compressor)

    def quantize(linear: nn.Linear) -> Quantized:
        weight = linear.weight.data
        low, high = extremes(weight, arguments.strategy, arguments.block_structure)
        scale, zero = calculate_qparams(low, high, arguments)
        # The library computes in the type of the scales.
        state = {"weight": weight.half(), "weight_scale": scale.half(), "weight_zero_point": zero}
        stored = packer.compress(state, scheme)
        wide = {key: v.float() if v.dtype == torch.half else v for key, v in stored.items()}
        return stored, packer.decompress(wide, scheme)["weight"].float()

    group = {"targets": ["Linear"], "weights": arguments.model_dump(mode="json", exclude_none=True)}
    settings = {"format": compressor, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}
    write(name, {"quant_method": "compressed-tensors", **settings}, quantize)


def extremes(weight: Tensor, strategy: str, block: Any) -> tuple[Tensor, Tensor]:
    """Return the least and greatest values that share a scale."""
    if strategy == "tensor":
        return weight.amin().view(1), weight.amax().view(1)
    if strategy == "channel":
        return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    if strategy == "block":
        rows, columns = block
        blocks = weight.unfold(0, rows, rows).unfold(1, columns, columns)
        return blocks.amin((2, 3)), blocks.amax((2, 3))
    grouped = weight.view(len(weight), -1, GROUP)
    return grouped.amin(-1), grouped.amax(-1)


def bitsandbytes(name: str, **options: Any) -> None:
    """bitsandbytes' layers, by transformers."""
    import bitsandbytes
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    source = FOLDER / "plain"
    plain_model().half().save_pretrained(source)
    config = BitsAndBytesConfig(llm_int8_skip_modules=["lm_head"], **options)
    loaded = AutoModelForCausalLM.from_pretrained(
        source, quantization_config=config, device_map="cpu", dtype=torch.float16
    )
    loaded.save_pretrained(FOLDER / "written")
    from safetensors.torch import load_file

    tensors = load_file(FOLDER / "written" / "model.safetensors")
    written = json.loads((FOLDER / "written" / "config.json").read_text())
    model = plain_model()
    for place, linear in linears(model):
        weight = loaded.get_submodule(place).weight
        if options.get("load_in_4bit"):
            # In float32 rather than in the type of the model.
            weight.quant_state.dtype = torch.float32
            found = bitsandbytes.functional.dequantize_4bit(weight.data, weight.quant_state)
        else:
            found = weight.data.float() * weight.SCB.view(-1, 1) / 127
        linear.weight.data = found.float().view(linear.weight.shape)
    save(name, model, tensors, written["quantization_config"])
    for folder in (source, FOLDER / "written"):
        shutil.rmtree(folder)


GROUPED: dict[str, Any] = {"strategy": "group", "group_size": GROUP}
FORMATS: dict[str, Callable[[], None]] = {
    "awq": awq,
    "gptq-4": lambda: gptq("gptq-4", 4, is_symmetric=True, is_v1=True, has_order=False),
    "gptq-4-order": lambda: gptq("gptq-4-order", 4, is_symmetric=False, is_v1=True, has_order=True),
    "gptq-8-v2": lambda: gptq("gptq-8-v2", 8, is_symmetric=False, is_v1=False, has_order=False),
    "w4a16": lambda: compressed("w4a16", "pack-quantized", num_bits=4, **GROUPED),
    "w4a16-zeros": lambda: compressed(
        "w4a16-zeros", "pack-quantized", num_bits=4, symmetric=False, **GROUPED
    ),
    "w8a16": lambda: compressed("w8a16", "pack-quantized", num_bits=8, strategy="channel"),
    "w8a8": lambda: compressed("w8a8", "int-quantized", num_bits=8, strategy="channel"),
    "fp8-channel": lambda: compressed(
        "fp8-channel", "float-quantized", num_bits=8, type="float", strategy="channel"
    ),
    "fp8-tensor": lambda: compressed(
        "fp8-tensor", "float-quantized", num_bits=8, type="float", strategy="tensor"
    ),
    "fp8-block": lambda: compressed(
        "fp8-block",
        "float-quantized",
        num_bits=8,
        type="float",
        strategy="block",
        block_structure=[32, 32],
    ),
    "nf4": lambda: bitsandbytes(
        "nf4", load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True
    ),
    "fp4": lambda: bitsandbytes("fp4", load_in_4bit=True, bnb_4bit_quant_type="fp4"),
    "int8": lambda: bitsandbytes("int8", load_in_8bit=True),
}


if __name__ == "__main__":
    for wanted in sys.argv[1:] or FORMATS:
        FORMATS[wanted]()
