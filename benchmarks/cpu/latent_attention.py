"""Time of a decode's attention over latents, beside that over keys and values of heads.

    python benchmarks/cpu/latent_attention.py --heads 16 64 --context 2048

Two models with random weights and equal heads: DeepSeek V3's form, whose cache keeps 576 numbers
per token and layer, and one that keeps 192 of a key and as many of a value per head, as DeepSeek's
heads would lie in a cache with keys and values of equal shape. Attention is run by itself, over a
batch that a worker assembled.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.config import WorkerConfig
from pagewire_worker.cpu_kernels.backend import FusedBackend
from pagewire_worker.loading.loader import Replica, load_replica

sys.path.append(str(Path(__file__).resolve().parents[1]))
from decode_step import Decodes, Timed, attention_row
from parts.machine import describe, read_bandwidth

LAYERS = 4
KEY, ROTATED, VALUE, LATENT = 128, 64, 128, 512
PAIRS = 5
SHARED = {
    "hidden_size": 512,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 512,
    "vocab_size": 512,
    "max_position_embeddings": 65536,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
}


def latents(heads: int) -> dict[str, object]:
    """Return the configuration of DeepSeek V3's form."""
    return {
        **SHARED,
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "q_lora_rank": None,
        "kv_lora_rank": LATENT,
        "qk_nope_head_dim": KEY,
        "qk_rope_head_dim": ROTATED,
        "v_head_dim": VALUE,
        "first_k_dense_replace": LAYERS,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "moe_intermediate_size": 64,
    }


def heads_apart(heads: int) -> dict[str, object]:
    """Return the configuration of a model with a key and a value per head."""
    return {
        **SHARED,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": KEY + ROTATED,
    }


def load(config: dict[str, object], context: int) -> Replica:
    """Return a worker's replica with random weights."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config))
        return load_replica(
            WorkerConfig(
                model=folder,
                load_format="dummy",
                cpu_backend="fused",
                max_model_len=context + 128,
                max_num_seqs=1,
                max_num_batched_tokens=context,
                kv_cache_memory=2 * context * heads_bytes(config) * LAYERS + (64 << 20),
            )
        )


def heads_bytes(config: dict[str, object]) -> int:
    """Return an upper bound of the bytes per token and layer."""
    heads = config["num_attention_heads"]
    assert isinstance(heads, int)
    return 4 * (KEY + ROTATED) * heads


def attention(replica: Replica, context: int) -> float:
    """Return the median seconds of a layer's attention in the decode of one sequence."""
    backend = replica.model_runner.backend
    assert isinstance(backend, FusedBackend), "the kernels do not run this model here"
    decodes = Decodes(replica, 1, context)
    forward = Timed(backend, "forward")
    decodes.step()
    backend.forward = forward.job  # type: ignore[method-assign]
    (ran,) = forward.arguments
    assert isinstance(ran, StepBatch)
    return attention_row(backend, ran).seconds / LAYERS


def main() -> None:
    """Print a line per number of heads."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--heads", type=int, nargs="+", default=[16, 64, 128])
    parser.add_argument("--context", type=int, default=2048)
    options = parser.parse_args()
    print(f"{describe()}; reads {read_bandwidth(2) / 1e9:.1f} GB/s")
    print("| heads | bytes read | latents, ms a layer | heads apart, ms a layer | times |")
    print("| --- | --- | --- | --- | --- |")
    for heads in options.heads:
        ours, other = (load(form(heads), options.context) for form in (latents, heads_apart))
        times = [[attention(one, options.context) for one in (ours, other)] for _ in range(PAIRS)]
        few, many = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
        ratio = statistics.median(far / near for near, far in times)
        fewer = heads * (KEY + ROTATED + VALUE) / (LATENT + ROTATED)
        print(f"| {heads} | 1/{fewer:.0f} | {few:.3f} | {many:.3f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
