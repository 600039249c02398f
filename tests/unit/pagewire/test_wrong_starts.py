"""Wrong starts: each ends before a process is started, with one line that names the cure.

`python tests/unit/pagewire/test_wrong_starts.py` prints the table of docs/start/wrong-starts.md.
"""

import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from pagewire.cli import main

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "max_position_embeddings": 512,
}
FILES = {"config.json": json.dumps(CONFIG), "tokenizer.json": "{}", "model.safetensors": ""}


@dataclass(frozen=True)
class WrongStart:
    """A command line, what its line contains, and the files of the folder `m` that it names."""

    command: str
    line: str
    files: dict[str, str] | None = None
    status: int = 1


def start(command: str, line: str, status: int = 1, **changes: str | None) -> WrongStart:
    """Return a wrong start with a folder whose files differ in `changes`; None takes one out.

    A double underscore in a name stands for the dot.
    """
    files = dict(FILES)
    for name, text in changes.items():
        if text is None:
            files.pop(name.replace("__", "."))
        else:
            files[name.replace("__", ".")] = text
    return WrongStart(command, line, files, status)


def config(**changes: Any) -> str:
    """Return a config.json with other fields."""
    return json.dumps({**CONFIG, **changes})


ONLY: dict[str, None] = {name.replace(".", "__"): None for name in FILES}

STARTS = [
    # What is named as the model.
    WrongStart("serve ./nothing", "--model: ./nothing does not exist"),
    WrongStart("serve /no/such/folder", "--model: /no/such/folder does not exist"),
    start("serve ./m/w.gguf", "m/w.gguf is no GGUF file", w__gguf="x"),
    start("serve ./m/config.json", "./m/config.json is a file; name the folder of the model"),
    start("serve ./m", "./m has no config.json", **ONLY),
    start("serve ./m", "./m is an adapter (LoRA)", **ONLY, adapter_config__json="{}"),
    start("serve ./m", "./m holds w.gguf: name the file, ./m/w.gguf", **ONLY, w__gguf=""),
    WrongStart("serve --model m=", "--model: 'm=' is neither name=path nor a path"),
    start("serve --model ./m --model ./m", "two models are named 'm'; write name=path"),
    start("serve --model a=./m --model b=./m --served-model-name c", "--served-model-name"),
    # What the folder holds.
    start("serve ./m", "m has no tokenizer (no tokenizer.json", tokenizer__json=None),
    start("serve ./m", "m has neither model.safetensors nor", model__safetensors=None),
    start(
        "serve ./m",
        "pytorch_model.bin is a pickle, which can run code and is not read: pagewire convert",
        model__safetensors=None,
        pytorch_model__bin="",
    ),
    start(
        "serve ./m",
        "but w.gguf: name the file, ",
        model__safetensors=None,
        w__gguf="",
    ),
    start("serve ./m", "is not valid JSON", config__json="{"),
    start("serve ./m", "must hold an object", config__json="[]"),
    start("serve ./m", "architectures is missing", config__json="{}"),
    start(
        "serve ./m",
        "its weights are quantized with aqlm, which is not read; awq, bitsandbytes, compressed-t",
        config__json=config(quantization_config={"quant_method": "aqlm"}),
    ),
    start(
        "serve ./m",
        "gptq with 3 bits is not read; 2, 4 and 8 are",
        config__json=config(quantization_config={"quant_method": "gptq", "bits": 3}),
    ),
    start(
        "serve ./m",
        "T5ForConditionalGeneration is an encoder-decoder, which is not supported",
        config__json=config(architectures=["T5ForConditionalGeneration"], is_encoder_decoder=True),
    ),
    start(
        "serve ./m",
        "MambaForCausalLM: its layers keep a state of their own",
        config__json=config(architectures=["MambaForCausalLM"], model_type="mamba"),
    ),
    start(
        "serve ./m",
        "BloomForCausalLM attends with ALiBi",
        config__json=config(architectures=["BloomForCausalLM"], model_type="bloom"),
    ),
    start(
        "serve ./m",
        "Gemma3ForConditionalGeneration: config.json has a vision_config and no text_config",
        config__json=config(architectures=["Gemma3ForConditionalGeneration"], vision_config={}),
    ),
    start("serve ./m", "text_config must be an object", config__json=config(text_config="x")),
    # Values of flags.
    start(
        "serve ./m --max-model-len 4096", "--max-model-len: 4096 is more than the model's context"
    ),
    WrongStart("serve --max-model-len 4096", "4096 is more than the model's context of 2048"),
    WrongStart("serve --device cuda", "--device: no CUDA device can be seen here"),
    WrongStart("serve --device tpu", "'tpu': the devices are CPUs and CUDA", status=2),
    WrongStart("serve -dcp 2", "--decode-context-parallel-size 2: a model is divided", status=2),
    WrongStart("serve --lora-modules sql=./sql", "--lora-modules: needs --enable-lora"),
    WrongStart("serve --limit-mm-per-prompt image=4", "0 is the limit of images", status=2),
    WrongStart("serve --trust-remote-code", "code of a checkpoint is never run", status=2),
    WrongStart("serve --ctx-size 4096", "--ctx-size: use --max-model-len", status=2),
    WrongStart("serve --quantization aqlm", "formats that a checkpoint is stored in", status=2),
    WrongStart("serve --chat-template ./no.jinja", "--chat-template: ./no.jinja cannot be read"),
    WrongStart("serve --tokenizer ./none", "--tokenizer: there is no folder ./none"),
    WrongStart("serve --tool-call-parser foo", "--tool-call-parser: 'foo' is none of hermes,"),
    WrongStart("serve --tool-call-parser a=hermes", "--tool-call-parser: no model is called 'a'"),
    WrongStart("serve --reasoning-parser foo", "--reasoning-parser: 'foo' is none of deepseek_r1,"),
    WrongStart(
        "serve --kv-cache-memory 100TiB", "--kv-cache-memory: 100.0 TiB asked for, but this"
    ),
    WrongStart("serve --kv-cache-memory lots", "--kv-cache-memory: "),
    WrongStart("serve --port 70000", "--port: 70000 is not between 0 and 65535"),
    WrongStart("serve --port 65535", "--grpc-port is needed: no port follows 65535"),
    WrongStart("serve --num-workers 0", "--num-workers: 0 is not between 1 and 64"),
    WrongStart("serve --prefill-workers 1", "--prefill-workers: needs --decode-workers"),
    WrongStart("serve --kvstore nowhere", "--kvstore"),
    WrongStart("serve --kvstore-disk-size 1GiB", "--kvstore-disk-size: needs --kvstore-disk-path"),
    WrongStart("serve --config ./none.yaml", "--config: cannot read none.yaml"),
    # The command line itself.
    WrongStart("serve --prot 1", "unknown flag --prot; did you mean --port?", status=2),
    WrongStart("sevre", "unknown command 'sevre'; did you mean serve?", status=2),
    WrongStart("serve --port {taken}", "--port: cannot listen on 127.0.0.1:{taken}"),
]


def attempt(one: WrongStart, folder: Path, taken: int) -> tuple[int, str, float]:
    """Run a command line; return its exit status, what it printed, and its seconds."""
    if one.files is not None:
        (folder / "m").mkdir(exist_ok=True)
        for name, text in one.files.items():
            (folder / "m" / name).write_text(text)
    printed, begin = StringIO(), time.perf_counter()
    with redirect_stderr(printed):
        try:
            status = main(one.command.format(taken=taken).split())
        except SystemExit as end:
            status = int(end.code or 0)
    return status, printed.getvalue(), time.perf_counter() - begin


@pytest.fixture(scope="module")
def taken() -> Any:
    """Yield a port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("one", STARTS, ids=lambda one: f"{one.command}-{one.line[:30]}")
def test_a_wrong_start_is_one_line(
    one: WrongStart, taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("subprocess.Popen", _no_process)
    status, printed, _ = attempt(one, tmp_path, taken)
    assert one.line.format(taken=taken) in printed
    assert status == one.status
    assert len(printed.strip().splitlines()) == 1, printed
    assert printed.startswith("pagewire")


def _no_process(*arguments: Any, **options: Any) -> None:
    pytest.fail("a process was started")


def table(run: Callable[[WrongStart], tuple[int, str, float]]) -> str:
    """Return the table of the document: command, status, seconds and line."""
    lines = ["| command | status | seconds | line |", "| --- | ---: | ---: | --- |"]
    for one in STARTS:
        status, printed, seconds = run(one)
        line = printed.strip().replace("|", "\\|")
        command = one.command.format(taken="8000")
        lines.append(f"| `pagewire {command}` | {status} | {seconds:.2f} | {line} |")
    return "\n".join(lines)


if __name__ == "__main__":
    import os

    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]

        def run(one: WrongStart) -> tuple[int, str, float]:
            """Run in a folder of its own."""
            with tempfile.TemporaryDirectory() as place:
                os.chdir(place)
                status, printed, seconds = attempt(one, Path(place), port)
                return status, printed.replace(f"{place}/", "./"), seconds

        sys.stdout.write(table(run) + "\n")
