"""`pagewire size MODEL`: how much memory a model takes, and how many sequences fit."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pagewire.config import integer
from pagewire.inspect.model_size import KV_DTYPES, QUANTIZATIONS, ModelSize, model_size
from pagewire.models import served_models
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.model_folder import (
    DEFAULT_REVISION,
    cache_folder,
    find_snapshot,
)
from pagewire_shared.model_files.config import read_config
from pagewire_shared.process.flags import HintingParser
from pagewire_shared.process.sizes import format_size, parse_size

DESCRIPTION = (
    "Compute from a model's files what one worker needs: weights, KV cache per token and per"
    " sequence, and how many sequences of full length fit. A folder with config.json alone will do."
)


def run(name: str, argv: Sequence[str]) -> int:
    """Print the sum. Raises StartupError when the files lack what it needs."""
    parser = HintingParser(prog=f"pagewire {name}", description=DESCRIPTION)
    parser.add_argument("MODEL", help="folder, built-in model, or hub id in the cache")
    parser.add_argument("--max-model-len", help="tokens of a sequence, such as 32768")
    dtypes = ("auto", "float32", "bfloat16", "float16")
    parser.add_argument("--dtype", default="auto", choices=dtypes, help="of weights and KV cache")
    kv_dtypes = ("auto", *KV_DTYPES)
    parser.add_argument("--kv-cache-dtype", default="auto", choices=kv_dtypes, help="of KV cache")
    parser.add_argument("--quantization", default="none", choices=QUANTIZATIONS)
    parser.add_argument("--memory", help="of the device or machine (default: this machine's)")
    parser.add_argument("--json", action="store_true", help="print JSON, sizes in bytes")
    options = parser.parse_args(argv)
    folder = _folder_of(options.MODEL)
    longest = integer(2)(options.max_model_len) if options.max_model_len else None
    size = model_size(
        folder,
        read_config(folder),
        dtype=options.dtype,
        quantization=options.quantization,
        max_len=longest,
        kv_dtype=options.kv_cache_dtype,
    )
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = parse_size(options.memory) if options.memory else total
    if options.json:
        shown = {**asdict(size), "memory": memory, "num_sequences": size.num_sequences(memory)}
        print(json.dumps(shown, indent=2))
    else:
        print(describe(size, memory))
    return 0


def describe(size: ModelSize, memory: int) -> str:
    """Return the sum as text."""
    fits = size.num_sequences(memory)
    cache = fits * size.sequence_bytes
    lines = [
        f"parameters          {size.num_parameters / 1e6:,.1f} million",
        f"weights             {format_size(size.weight_bytes)}",
        f"KV cache per token  {format_size(size.kv_token_bytes)}",
        f"per sequence        {format_size(size.sequence_bytes)} at {size.context:,} tokens",
        f"step and libraries  {format_size(size.step_bytes)}, about",
        f"in {format_size(memory)}         {fits:,} sequences of full length",
    ]
    if fits:
        lines.append(f"on a CPU give       --kv-cache-memory {max(1, cache // 2**20)}MiB")
    else:
        lines.append("it does not fit: a shorter --max-model-len, --quantization, or more memory")
    return "\n".join(lines)


def _folder_of(text: str) -> Path:
    [model] = served_models([text], None)
    if model.is_local:
        return Path(model.path)
    hub_id, _, revision = model.path.partition("@")
    cache = cache_folder(os.environ)
    found = find_snapshot(cache, hub_id, revision or DEFAULT_REVISION, has_weights=False)
    if found is None:
        raise StartupError(f"MODEL: {text} is neither a folder nor in the cache {cache}")
    return found
