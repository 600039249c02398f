"""This project and other servers on one model and one machine, one after the other.

    python benchmarks/compare --model checkpoints/qwen2.5-0.5b
    python benchmarks/compare --model checkpoints/qwen2.5-0.5b --cases a,b --repeats 1 \\
        --ours plain= --ours "int8=--quantization int8" \\
        --peer vllm=venvs/vllm/bin/python --peer llama.cpp=build/bin/llama-server,gguf=model.gguf

Without a peer it measures this project alone. README.md beside this file says how each peer is set
up and what the cases are.
"""

import sys
from pathlib import Path

# The folder that was named on the command line is a package; `machine` lies beside it.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from compare.command import main  # noqa: E402

if __name__ == "__main__":
    main(__doc__ or "")
